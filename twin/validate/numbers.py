"""The numbers of the calibration profiles that are fitted on published steps, and the fits:
`python -m twin.validate.numbers A100` (or H100, B200) prints them beside what is shipped.

Hardware decides a number that all stacks on a GPU share: how far its tensor cores come, and what
they keep of that for hours. Software decides what a stack has to itself: how well its kernels that
wait for memory stream, how soon its host launches the next one, what it costs it to bring tokens in
order of expert. Priors are what kernels alone measure, or a source states; where there is neither,
their spread says so.
"""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import Final

from twin.calibrate.a100 import layer_rows
from twin.calibrate.rows import BASE
from twin.loading import load, load_part
from twin.loading.files import shipped_folder
from twin.validate.fit import Fit, Free, Target, fit, targets
from twin.validate.suite import SHIPPED, read_suite

_A100: Final = (
    "a100-megatron",
    "a100-megascale",
    "a100-megatron-2023",
    "a100-megatron-deepspeed",
    "a100-llm-foundry",
)
_DEEPSPEED: Final = ("a100-megatron-deepspeed",)
_H100: Final = ("h100-nemo", "h100-maxtext", "h100-automodel", "h100-llm-foundry")
_HOPPER: Final = (*_H100, "h100-500w-torchtitan", "h200-torchtitan")
_B200: Final = ("b200-nemo", "b300-nemo", "gb200-nemo", "gb300-nemo")

FREE: Final = MappingProxyType(
    {
        "A100": (
            # 0.832 and 112: products alone on H100 (gemm-h100-bf16.yaml); best on A100: 0.87.
            Free("matmuls.bf16.efficiency", _A100, 0.832, 0.08, 0.30, 0.95),
            Free("matmuls.bf16.ramp", _A100, 112, 0.6, 10, 2000),
            Free("bandwidth", ("a100-megatron", "a100-megascale"), 0.80, 0.15, 0.40, 0.95),
            Free("bandwidth", ("a100-megatron-2023",), 0.75, 0.25, 0.30, 0.95),
            Free("bandwidth", ("a100-llm-foundry",), 0.70, 0.30, 0.30, 0.95),
            Free("bandwidth", _DEEPSPEED, 0.70, 0.20, 0.30, 0.95),
            Free("launch", _DEEPSPEED, 5e-6, 0.5, 1e-6, 3e-5),
            Free("dispatch", _DEEPSPEED, 60e-6, 0.3, 1e-6, 1e-4),
        ),
        "H100": (
            Free("sustained", (*_H100, "h200-torchtitan"), 0.88, 0.10, 0.60, 1.0),
            Free("sustained", ("h100-500w-torchtitan",), 0.75, 0.15, 0.40, 1.0),
            Free("matmuls.fp8.efficiency", _HOPPER, 0.75, 0.08, 0.50, 0.95),
            Free("streaming.gather.bandwidth", _H100[:3], 0.60, 0.40, 0.10, 0.90),
            # 63 us: what the host of vTrain's A100 takes for each kernel that the twin counts.
            Free("dispatch", ("h100-nemo", "h100-automodel"), 63e-6, 0.5, 2e-6, 5e-4, start=120e-6),
            Free("bandwidth", ("h100-llm-foundry",), 0.70, 0.30, 0.20, 0.95),
        ),
        "B200": (
            Free("sustained", _B200, 0.85, 0.12, 0.40, 1.0),
            Free("matmuls.fp8.efficiency", _B200, 0.72, 0.10, 0.40, 0.95),
            Free("streaming.gather.bandwidth", _B200, 0.60, 0.40, 0.10, 0.90),
        ),
    }
)
"""What is fitted together, by the first GPU of an architecture."""


def profiles(gpu: str) -> tuple[str, ...]:
    """The profiles whose numbers are fitted together with those of a GPU."""
    return tuple(dict.fromkeys(name for one in FREE[gpu] for name in one.profiles))


def fit_of(gpu: str) -> Fit:
    """The fit on all shipped rows whose use is `fit`."""
    own = profiles(gpu)
    rows = targets(read_suite(), own)
    layers = _layers() if "a100-megatron" in own else ()
    return fit((*rows, *layers), FREE[gpu])


def _layers() -> tuple[Target, ...]:
    """Ten times of one layer (Korthikanti et al. 2022, Table 4)."""
    published = shipped_folder() / SHIPPED
    return tuple(
        Target(row.name, "a100-megatron", load(BASE, row.overrides), row.measured, row.predict)
        for row in layer_rows(published)
    )


def shipped(one: Free) -> float:
    """The number as the catalog has it."""
    found: object = load_part("calibrations", one.profiles[0]).spec
    for name in one.path.split("."):
        found = getattr(found, name)
    assert isinstance(found, int | float)
    return float(found)


def table(found: Fit) -> str:
    """A fit as text: prior, value with its standard error, what is shipped; errors of the rows."""
    lines: list[str] = []
    for one, value, error in zip(found.free, found.values, found.ridge.deviations, strict=True):
        lines.append(
            f"{one.path:28} {one.prior:10.4g} +- {one.spread:4.0%} -> {value:10.4g} +- {error:5.1%}"
            f"  shipped {shipped(one):10.4g}  {', '.join(one.profiles)}"
        )
    for row, error in zip(found.targets, found.ridge.errors, strict=True):
        lines.append(f"{row.id:64} {row.profile:26} {error:+7.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    for name in sys.argv[1:] or FREE:
        sys.stdout.write(f"{name}\n{table(fit_of(name))}\n")
