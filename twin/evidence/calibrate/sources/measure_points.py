"""Points of `python -m reference.measure`: kernels by shape, one file per group of them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, final

from twin.evidence.calibrate.measure_folder import kernels_in
from twin.evidence.calibrate.sources.base import Findings, Source
from twin.loading.files import display


@final
class MeasurePoints(Source):
    """A file of points."""

    reads: ClassVar[tuple[str, ...]] = ("measure-points",)

    def read(self, path: Path) -> Findings:
        """Every kernel in 16 bits that a profile has a number for."""
        machine, kernels, left_out = kernels_in(path)
        unused = tuple(f"{display(path)}: {n} points of {what}" for what, n in left_out.items())
        took = (f"{len(kernels)} kernels by shape",) if kernels else ()
        device = str(machine.get("device", machine.get("name", "")))
        return Findings(took, unused, device, (), kernels)
