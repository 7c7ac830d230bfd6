"""What is asked of a calibration, and what follows from it: GPU, base profile and name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from twin.errors import Problem, UsageError
from twin.evidence.calibrate.result import Stamp
from twin.loading import catalog_parts, load_part
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec

Tell = Callable[[str], None]
"""Told what is under way."""


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """What to calibrate from: the source; the base profile and the GPU by their names (None: those
    of the source); a scenario that says what a table leaves out, and overrides of every row; the
    factors to fit, instead of those that the rows can tell; and what the profile is called."""

    source: Path
    base: str | None = None
    gpu: str | None = None
    defaults: str | None = None
    sets: tuple[str, ...] = ()
    factors: tuple[str, ...] | None = None
    name: str | None = None


def gpu_of(request: CalibrationRequest, device: str) -> GpuSpec:
    """The GPU that was asked for, or the one that the source names so."""
    near = (request.source if request.source.is_dir() else request.source.parent,)
    if request.gpu is not None:
        return load_part("gpus", request.gpu, near).spec
    if (known := known_gpu(device, near)) is not None:
        return known
    names = catalog_parts("gpus", near)
    told = f"`{device}`" if device else "no GPU"
    message = f"the source names {told}, and the catalog cannot tell which that is"
    fix = f"write --gpu with one of: {', '.join(names)}"
    raise UsageError([Problem("TW356", "--gpu", message, fix)])


def known_gpu(device: str, near: tuple[Path, ...] = ()) -> GpuSpec | None:
    """The GPU of the catalog that a driver calls so; None where there is none."""
    words = set(re.split(r"[^A-Z0-9]+", device.upper()))
    names = catalog_parts("gpus", near)
    # The most exact of those whose every word the device has: A100-SXM4-80GB is a100-80gb.
    known = [name for name in names if set(name.upper().split("-")) <= words]
    return load_part("gpus", max(known, key=len), near).spec if known else None


def base_of(request: CalibrationRequest, own: CalibrationSpec) -> CalibrationSpec:
    """The profile that a fit stays near: the one asked for, or that of the GPU."""
    if request.base is None:
        return own
    near = [request.source if request.source.is_dir() else request.source.parent]
    if request.defaults is not None:
        near.append(Path(request.defaults).parent)
    return load_part("calibrations", request.base, near).spec


def name_of(request: CalibrationRequest, stamp: Stamp) -> str:
    """What the profile is called: as asked, or after device and source."""
    stem = request.name or f"{stamp.device}-{request.source.name.split('.')[0]}"
    return re.sub(r"[^a-z0-9.]+", "-", stem.lower()).strip("-")
