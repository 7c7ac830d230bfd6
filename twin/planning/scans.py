"""What the assumed speed of linear attention and state-space kernels is worth in a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twin.arch.ops import SCAN_CLASSES, Op
from twin.hardware.roofline import seconds
from twin.planning.types import Chunk
from twin.scenario import Scenario
from twin.spec.calibration import SCANS


@dataclass(frozen=True, slots=True)
class ScanRange:
    """What is assumed each way, and percent by which the kernels of a micro-batch get slower, and
    faster, at the ends of the assumed range."""

    forward: float
    backward: float
    slow: float
    fast: float


def scan_range(scenario: Scenario, chunks: Sequence[Chunk]) -> ScanRange | None:
    """The range over all chunks; None where no kernel is a scan, or the profile knows them."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    ops = [item for layer in layers for item in layer.items if isinstance(item, Op)]
    kinds = {op.kind for op in ops if op.kind in SCAN_CLASSES}
    known = (scenario.calibration.scan_forward, scenario.calibration.scan_backward)
    if not kinds or None not in known:
        return None
    gpu = scenario.cluster.node.gpu
    (assumed,) = (SCANS[kind] for kind in kinds)  # a model has one mixer

    def shares(end: int) -> list[float]:
        return [way[end] if own is None else own for way, own in zip(assumed, known, strict=True)]

    def kernels(end: int) -> float:
        forward, backward = shares(end)
        own = {"scan_forward": forward, "scan_backward": backward}
        profile = scenario.calibration.model_copy(update=own)
        return sum(
            seconds(op.kind, op.forward, gpu, profile)
            + seconds(op.kind, op.backward + op.weight, gpu, profile, backward=True)
            for op in ops
        )

    usual, slow, fast = map(kernels, range(3))
    forward, backward = shares(0)
    return ScanRange(forward, backward, 100 * (slow / usual - 1), 100 * (1 - fast / usual))
