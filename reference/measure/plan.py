"""What a day on a GPU machine measures, in which order, how long each item takes, and which numbers
of the flagship's calibration it narrows.

The flagship is Kimi K2 on H800. Its numbers stand in the catalog with the interval in which each
may lie; an item names the fields that its points replace. Items that a profile cannot do without
come first, then what was never measured, then whole steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Protocol

import torch

from reference.measure.clock import Effort
from reference.measure.groups import GROUPS
from reference.measure.layouts import STEPS
from reference.measure.points import CACHES, Setting, TimedCase
from reference.measure.run import MOST_BYTES, MOST_FLOP, SECONDS
from twin.loading import load_part

CALIBRATION: Final = "h800-hopper-bf16"
NODE: Final = "h800-8gpu"
"""Of the flagship."""
MODEL: Final = "kimi-k2"
EACH: Final = 0.48
"""Seconds of a case of kernels: 500 in four minutes on an H100 (docs/reports/2026-11-28-gpu.md)."""
START: Final = 10.0
"""Seconds until a process has torch and a GPU."""
BETWEEN: Final = 1.5
"""Seconds of a case of ranks: 15 samples of hundreds of megabytes, and new groups."""
RANKS: Final = 60
"""Cases of ranks on one machine."""
LAYOUT: Final = 30.0
"""Seconds until the ranks of a layout have their model and text; then STEPS steps of about 1 s."""
NODE_GPUS: Final = 8
"""What the layouts are for."""
LAYOUTS: Final = Path(__file__).parents[2] / "scenarios" / "gpu-day"
"""A folder per GPU with a scenario per layout, and the seals of their predictions."""


class Sourced(Protocol):
    """A number of the catalog as written, how it is known, and the range in which it may lie."""

    @property
    def value(self) -> object:
        """As it stands in its file."""
        ...

    @property
    def kind(self) -> str:
        """Measured, fitted or assumed."""
        ...

    @property
    def range(self) -> tuple[object, object] | None:
        """Its ends."""
        ...


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to measure. `module` runs with `words`; over `ranks` GPUs where that is not 0."""

    name: str
    seconds: float
    what: str
    narrows: tuple[str, ...]
    module: str
    words: tuple[str, ...]
    ranks: int = 0
    scenario: Path | None = None


_KERNELS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "launch": ("chains of tiny kernels", ("calibration.launch", "calibration.dispatch")),
    "bandwidth": ("kernels bound by memory, by kind", ("calibration.bandwidth",)),
    "gemm": (
        "products in bf16 and FP8 (points, no fit): torch, and DeepGEMM where installed",
        ("calibration.gemm", "calibration.matmuls.*"),
    ),
    "grouped": (
        "products of experts: equal, uneven, empty, gradients of weights",
        ("calibration.grouped_gemm", "calibration.matmuls.bf16.grouped"),
    ),
    "attention": ("attention, forward and backward", ("calibration.attention_*",)),
    "streams": ("kernels and copies in pairs of streams", ("calibration.contention",)),
    "sustained": ("a product without pause for ten seconds, bf16 and FP8", ()),
    "copies": ("pinned copies to and from the host", ("node.host.pcie.*",)),
    "host": ("calls of PyTorch's host", ("calibration.dispatch",)),
    "collectives": ("four collectives by size over all GPUs", ("node.nvlink.*",)),
    "optimizer": ("AdamW, gradient norm, Newton-Schulz", ()),
    "steps": ("whole steps of the small model on one GPU", ()),
}
_FIRST: Final = ("launch", "bandwidth", "gemm", "grouped", "attention")
"""A profile needs them."""
_BESIDE: Final = (
    "calibration.contention",
    "calibration.collective_sms",
    "calibration.expert_*",
    "node.nvlink.*",
)


def plan(gpus: int, gpu: str) -> list[Item]:
    """The items for so many GPUs of a machine; `gpu` names the folder of layouts."""
    kernels = {name: _kernels(name, gpus) for name in _KERNELS}
    first = [kernels.pop(name) for name in _FIRST]
    several = list(_several(gpus, gpu)) if gpus > 1 else []
    if gpus < 2:
        del kernels["collectives"]
    return [*first, *several[:1], *kernels.values(), *several[1:]]


def _kernels(name: str, gpus: int) -> Item:
    what, narrows = _KERNELS[name]
    words = ("--only", name)
    return Item(name, _estimate(name, gpus), what, narrows, "reference.measure", words)


def _estimate(name: str, gpus: int) -> float:
    """By its cases, as they would be on an H100."""
    device, seconds = torch.device("cuda"), SECONDS["cuda"]
    spec = load_part("models", MODEL).spec
    limits = (False, MOST_FLOP["cuda"], MOST_BYTES["cuda"], CACHES * 2**26, gpus)
    found = GROUPS[name](Setting(device, MODEL, spec, ("bf16",), Effort(seconds), *limits))
    count = sum(isinstance(case, TimedCase) for case in found)
    return START + EACH * count + (20 * seconds * 10 if name == "sustained" else 0.0)


def _several(gpus: int, gpu: str) -> Iterator[Item]:
    yield Item(
        "ranks",
        START + RANKS * BETWEEN,
        "collectives and messages by size, uneven exchanges, products and copies beside exchanges,"
        " all-reduces on few SMs, DeepEP where installed",
        _BESIDE,
        "reference.measure.ranks",
        (),
        gpus,
    )
    for scenario in layouts(gpu) if gpus == NODE_GPUS else ():
        what = "a step of the small model: " + scenario.stem.replace("-", " ")
        yield Item(
            f"layout {scenario.stem}",
            LAYOUT + STEPS,
            what,
            (),
            "reference.train",
            (),
            gpus,
            scenario,
        )


def layouts(gpu: str) -> list[Path]:
    """The scenarios of a GPU, in order of their names."""
    return sorted((LAYOUTS / gpu).glob("*.yaml"))


def assumed() -> dict[str, Sourced]:
    """The flagship's numbers that may lie elsewhere, by their fields: all of its calibration, and
    its node's links."""
    parts = {
        "calibration": load_part("calibrations", CALIBRATION),
        "node": load_part("nodes", NODE),
    }
    links = ("nvlink.", "nic.", "host.pcie.")
    return {
        f"{part}.{field}": number
        for part, loaded in parts.items()
        for field, number in loaded.ledger.items()
        if number.range is not None and (part == "calibration" or field.startswith(links))
    }


def narrowed(item: Item) -> dict[str, Sourced]:
    """Those that an item's points replace."""
    return {
        field: number
        for field, number in assumed().items()
        if any(fnmatchcase(field, pattern) for pattern in item.narrows)
    }


def text(items: Sequence[Item]) -> str:
    """The plan for a person, with minutes."""
    lines = [f"{'Item':42} {'seconds':>7}  what it measures, and what it narrows"]
    for item in items:
        lines.append(f"{item.name:42} {item.seconds:7.0f}  {item.what}")
        lines += [f"{'':50}   {_known(field, one)}" for field, one in narrowed(item).items()]
    total = sum(item.seconds for item in items)
    lines += [f"{'all':42} {total:7.0f}  {total / 60:.0f} minutes", "", ACROSS]
    return "\n".join(lines)


def _known(field: str, number: Sourced) -> str:
    low, high = number.range or (None, None)
    return f"{field}: {number.value}, {number.kind}, {low} to {high}"


ACROSS: Final = """\
Between machines, 2 minutes more, started on each of them into the same folder of the first one:
  torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint FIRST:29500 \\
    -m reference.measure.ranks --output FOLDER
  It narrows node.nic.efficiency, node.nic.latency and node.nic.exchange_peer."""
