"""What the assumed speed of linear attention and state-space kernels is worth in a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twin.arch.ops import Op
from twin.hardware.roofline import seconds
from twin.planning.types import Chunk
from twin.scenario import Scenario
from twin.spec.calibration import SCANS


@dataclass(frozen=True, slots=True)
class ScanRange:
    """Percent by which the kernels of a micro-batch get slower, and faster, at the ends of the
    assumed range."""

    slow: float
    fast: float


def scan_range(scenario: Scenario, chunks: Sequence[Chunk]) -> ScanRange | None:
    """The range over all chunks; None where no kernel is a scan."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    ops = [item for layer in layers for item in layer.items if isinstance(item, Op)]
    if all(op.kind != "scan" for op in ops):
        return None
    gpu = scenario.cluster.node.gpu

    def kernels(end: int) -> float:
        own: dict[str, float] = {f"scan_{way}": shares[end] for way, shares in SCANS.items()}
        profile = scenario.calibration.model_copy(update=own)
        return sum(
            seconds(op.kind, op.forward, gpu, profile)
            + seconds(op.kind, op.backward + op.weight, gpu, profile, backward=True)
            for op in ops
        )

    usual, slow, fast = map(kernels, range(3))
    return ScanRange(100 * (slow / usual - 1), 100 * (1 - fast / usual))
