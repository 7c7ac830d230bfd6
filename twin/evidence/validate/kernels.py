"""Rows of kernels: seconds of single products and of attention, as a plan prices them.

A row's kernels are read by what it says of them (`twin.evidence.calibrate.kernels`) and priced
under the profile of its GPU whose products are known by shape, or the first that the catalog has.
Which library ran is not asked: a profile has one law for all.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from twin.errors import UsageError
from twin.evidence.calibrate.kernels import FILES, Kernel, NotPriced, read
from twin.evidence.validate.answer import Answer, blank, refused
from twin.evidence.validate.row import Row, Unreadable
from twin.loading import catalog_parts, load_part
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec

SECONDS: Final = "kernel_seconds"
GARBLED: Final = "its shapes and times cannot be read"
MOST: Final = 1e30
"""More FLOP, or seconds, than any kernel has."""


def answers(row: Row) -> tuple[Answer, ...]:
    """Seconds of every kernel of a row, one answer each."""
    try:
        profile = profile_of(row)
        kernels = kernels_of(row)
    except Unreadable as why:
        return (refused(row, SECONDS, str(why)),)
    return tuple(answer(row, kernel, kernel.predicted(*profile), profile[1]) for kernel in kernels)


def answer(row: Row, kernel: Kernel, predicted: float, calibration: CalibrationSpec) -> Answer:
    """The answer to one kernel, named by its shape."""
    return replace(
        blank(row, SECONDS),
        id=f"{row.id}[{kernel.shape}]",
        predicted=predicted,
        measured=kernel.measured,
        stack=calibration.name,
    )


def kernels_of(row: Row) -> tuple[Kernel, ...]:
    """What a row measured. Raises `Unreadable` with the reason where the twin has no such
    kernel."""
    try:
        found = read(row.fields)
    except NotPriced as why:
        raise Unreadable(str(why)) from None
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        raise Unreadable(GARBLED) from None
    numbers = (
        n for kernel in found for n in (kernel.measured, kernel.work.flop, kernel.work.bytes)
    )
    if not all(0 < number < MOST for number in numbers):
        raise Unreadable(GARBLED)
    return found


def profile_of(row: Row) -> tuple[GpuSpec, CalibrationSpec]:
    """A row's GPU and the calibration of its kernels."""
    try:
        gpu = load_part("gpus", row.gpu.removesuffix(" SXM")).spec
    except UsageError:
        raise Unreadable(f"the catalog has no GPU {row.gpu}") from None
    return gpu, load_part("calibrations", _profile(gpu.name)).spec


@cache
def _profile(gpu: str) -> str:
    for name in (*FILES, *catalog_parts("calibrations")):
        if load_part("calibrations", name).spec.gpu == gpu:
            return name
    raise Unreadable(f"the catalog has no calibration of {gpu}")
