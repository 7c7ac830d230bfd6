"""A trace of `torch.profiler`: kernels by shape (`twin.evidence.calibrate.profiler`)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, final

from twin.evidence.calibrate.profiler import UnmappedTime, read_trace
from twin.evidence.calibrate.sources.base import Findings, Source


@final
class PytorchTrace(Source):
    """A trace in Chrome's format."""

    reads: ClassVar[tuple[str, ...]] = ("pytorch-trace",)

    def read(self, path: Path) -> Findings:
        """Kernels whose calls have shapes."""
        found = read_trace(path)
        took = f"{len(found.kernels)} kernels by shape, {found.share:.0%} of {found.seconds:.3g} s"
        unused = told(found.others, found.seconds)
        if found.begun:
            unused = (
                *unused,
                "all but its beginning (half a million calls and kernels)",
            )
        return Findings((took,), unused, found.device, (), found.kernels)


def told(others: tuple[UnmappedTime, ...], seconds: float) -> tuple[str, ...]:
    """Time that no kernel of the twin stands for: the reasons, each with its share."""
    shares: dict[str, float] = {}
    for one in others:
        shares[one.why] = shares.get(one.why, 0.0) + one.seconds / seconds
    ranked = sorted(shares.items(), key=lambda pair: -pair[1])
    return tuple(f"{share:.0%} of kernel time: {why}" for why, share in ranked if share >= 0.005)
