"""The measured kernels behind a profile, and what it gives for them: as data, and as lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import exp
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from twin.evidence.calibrate.kernels import PROFILE, Kernel, TraceClass, kernels, trace
from twin.loading import load_part

if TYPE_CHECKING:
    from twin.spec.calibration import CalibrationSpec


def rows(calibration: CalibrationSpec) -> list[dict[str, Any]]:
    """Every measured kernel of a profile with seconds measured and predicted."""
    return [
        {
            "row": kernel.row,
            "file": kernel.file,
            "shape": kernel.shape,
            "measured": kernel.measured,
            "predicted": kernel.measured * exp(error),
            "error": exp(error) - 1.0,
        }
        for kernel, error in _judged(calibration)
    ]


def lines(calibration: CalibrationSpec) -> Iterator[str]:
    """The same as text, by file, each with its errors in short; then the training trace, where the
    profile has one."""
    judged = _judged(calibration)
    for row, group in groupby(judged, lambda one: one[0].row):
        own = list(group)
        errors = [abs(exp(error) - 1.0) for _, error in own]
        yield ""
        yield (
            f"{row}: {len(own)} kernels, mean error {mean(errors):.1%}, median "
            f"{median(errors):.1%}, worst {max(errors):.1%}".replace("%", " %")
        )
        yield from (_line(kernel, error) for kernel, error in own)
    if judged and calibration.name == PROFILE:
        yield ""
        yield "DeepSeek's training trace, four layers: alone, beside DeepEP, measured"
        yield from map(_part, trace())


def _judged(calibration: CalibrationSpec) -> list[tuple[Kernel, float]]:
    """The kernels of a profile, each with the logarithm of predicted over measured."""
    own = kernels(calibration.name)
    if not own:
        return []
    gpu = load_part("gpus", calibration.gpu).spec
    return [(kernel, kernel.error(gpu, calibration)) for kernel in own]


def _line(kernel: Kernel, error: float) -> str:
    predicted = kernel.measured * exp(error)
    return (
        f"{kernel.shape}: measured {_us(kernel.measured)}, predicted {_us(predicted)}, "
        f"{100 * (exp(error) - 1.0):+.1f} %"
    )


def _part(part: TraceClass) -> str:
    return (
        f"{part.name}: alone {1e3 * part.alone:.1f} ms, beside {1e3 * part.beside:.1f} ms, "
        f"measured {1e3 * part.measured:.1f} ms, "
        f"{100 * (part.beside / part.measured - 1.0):+.1f} %"
    )


def _us(seconds: float) -> str:
    """Microseconds with one decimal."""
    return f"{1e6 * seconds:,.1f} us"
