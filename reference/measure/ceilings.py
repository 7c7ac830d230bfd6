"""What a device could do at best: from its datasheet where the catalog knows it, otherwise the best
that was measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reference.machine import Machine
from reference.measure.case import BF16
from reference.measure.point import Point, Statistic
from twin.loading import catalog_parts, load_part

SAME: Final = 0.03
"""How far memory may lie from a catalog part's for it to be the same GPU: drivers differ by less
than 1 %, capacities on sale by at least 10 %."""


@dataclass(frozen=True, slots=True)
class Best:
    """FLOP/s and bytes/s at best, how each is known, and the catalog's GPU and node that this
    device is, if it is one."""

    peak: float
    bandwidth: float
    peak_note: str
    bandwidth_note: str
    gpu: str | None = None
    node: str | None = None


def best(points: Sequence[Point], machine: Machine, statistic: Statistic) -> Best:
    """The ceilings of the machine. Without products or copies among the points they are zero."""
    gpu = known_gpu(machine)
    if gpu is not None:
        spec = load_part("gpus", gpu).spec
        note = f"datasheet, as in the catalog's {gpu}"
        return Best(spec.bf16_dense, spec.memory_bandwidth, note, note, gpu, _node(gpu))
    products = [p for p in points if p.group in ("gemm", "grouped") and p.dtype == BF16]
    fastest = max(products, key=lambda p: p.rate(statistic), default=None)
    copies = [p for p in points if p.op in ("copy", "add", "accumulate")]
    longest = max((p.bytes for p in copies), default=0.0)
    moves = [p for p in copies if p.bytes >= longest / 4]
    quickest = max(moves, key=lambda p: p.bytes / p.timing.seconds(statistic), default=None)
    return Best(
        fastest.rate(statistic) if fastest else 0.0,
        quickest.bytes / quickest.timing.seconds(statistic) if quickest else 0.0,
        f"no datasheet: the fastest bf16 product measured, {_shape(fastest)}",
        f"no datasheet: the fastest of the longest copies and sums measured, {_shape(quickest)}",
    )


def known_gpu(machine: Machine) -> str | None:
    """The catalog's name of a GPU with these words in its name, this memory and as many SMs."""
    if machine.kind != "cuda":
        return None
    words = set(_words(machine.device))
    found: list[tuple[int, str]] = []
    for name in catalog_parts("gpus"):
        spec = load_part("gpus", name).spec
        own = set(_words(spec.name))
        close = abs(machine.memory / spec.memory - 1) < SAME
        if own <= words and close and spec.sms == machine.units:
            found.append((len(own), name))
    return max(found)[1] if found else None


def _node(gpu: str) -> str | None:
    """The catalog's first node of that GPU."""
    name = load_part("gpus", gpu).spec.name
    return next((n for n in catalog_parts("nodes") if _gpu_of(n) == name), None)


def _gpu_of(node: str) -> str:
    return load_part("nodes", node).spec.gpu.name


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _shape(point: Point | None) -> str:
    return "none" if point is None else f"{point.op} of {_sizes(point)}"


def _sizes(point: Point) -> str:
    return " x ".join(f"{value:,}" for value in point.shape.values())
