"""Kernels of the Hopper profiles, and products of A100's: `python -m
twin.evidence.calibrate.hopper` fits and prints them.

Per precision three numbers (efficiency, ramp, launch) on dense products (of FP8 also grouped ones),
then, with these held, one for products in a row, groups or gradients of weights; two of attention
by direction. Memory efficiency is that of the profile: left free, it comes out between 0.80 and
0.86 for every set of rows. Rows of the training trace are in none of them
(`twin.evidence.calibrate.kernels` compares).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from twin.evidence.calibrate.kernels import Kernel, published
from twin.evidence.calibrate.ridge import SOFT
from twin.loading import load_part
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec

_Section = TypeVar("_Section", bound=Spec)
Path = tuple[str, ...]
"""A number of a profile, by the names of its sections."""


@dataclass(frozen=True, slots=True)
class ProfileTask:
    """Numbers of a profile, fitted on some kernels with everything else as it is: how each is
    found from one of about 1 (`scale` times it), with its bounds."""

    name: str
    numbers: tuple[Path, ...]
    scales: tuple[float, ...]
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class FittedValues:
    """Values with standard errors (Gauss-Newton), and the log error of each kernel."""

    values: tuple[float, ...]
    errors: tuple[float, ...]
    residuals: tuple[float, ...]


BF16: Final = ("matmuls", "bf16")
FP8: Final = ("matmuls", "fp8")
SCALES: Final = (1.0, 1000.0, 1e-5)
"""About how large efficiency, ramp and launch are."""


def tasks(profile: str) -> tuple[ProfileTask, ...]:
    """What is fitted of a profile."""
    if profile == "a100-ampere-bf16":
        brief = ProfileTask("bf16", _law(BF16), SCALES, published("gemm-a100-bf16"))
        return brief, _continuous("gemm-a100-fp16-continuous")
    dense = ProfileTask("bf16", _law(BF16), SCALES, published("gemm-h100-bf16"))
    continuous = _continuous("gemm-h100-fp16-continuous")
    groups = published("gemm-h100-bf16-grouped")
    grouped = ProfileTask("bf16, grouped", ((*BF16, "grouped"),), (1.0,), groups)
    backward = _attention("attention, backward", "attention-h100", backward=True)
    if profile == "h100-hopper-bf16":
        block = ProfileTask("fp8, with cast", _law(FP8), SCALES, published("gemm-h100-fp8-block"))
        forward = _attention("attention, forward", "attention-h100", backward=False)
        return dense, continuous, grouped, block, forward, backward
    weight = published("deepgemm-h800-weight-gradient")
    return (
        dense,
        continuous,
        grouped,
        ProfileTask("fp8", _law(FP8), SCALES, published("deepgemm-h800")),
        ProfileTask("fp8, weight gradient", ((*FP8, "weight_gradient"),), (1.0,), weight),
        _attention("attention, forward: the ramp", "attention-h100-ramp", backward=False),
        replace(backward, name="attention, backward: the ramp"),
    )


def _continuous(file: str) -> ProfileTask:
    """What products keep one after the other."""
    return ProfileTask("bf16, continuous", ((*BF16, "sustained"),), (1.0,), published(file))


def _law(section: Path) -> tuple[Path, ...]:
    return tuple((*section, name) for name in ("efficiency", "ramp", "launch"))


def _attention(name: str, file: str, *, backward: bool) -> ProfileTask:
    direction = "backward" if backward else "forward"
    own = tuple(kernel for kernel in published(file) if kernel.backward == backward)
    numbers = ((f"attention_{direction}",), (f"attention_{direction}_ramp",))
    return ProfileTask(name, numbers, SCALES[:2], own)


def fitted(task: ProfileTask, gpu: GpuSpec, profile: CalibrationSpec) -> FittedValues:
    """The numbers that bring the profile closest to the kernels (soft-L1 of log errors)."""

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        changed = with_numbers(profile, task.numbers, x * np.array(task.scales))
        return np.array([kernel.error(gpu, changed) for kernel in task.kernels])

    start = np.full(len(task.numbers), 0.5)
    bounds = (np.full(len(start), 1e-3), np.full(len(start), 1.0))
    # scipy does not know its own types.
    solve = cast("Any", least_squares)
    solution = solve(
        residuals, start, bounds=bounds, loss="soft_l1", f_scale=SOFT / 2, diff_step=1e-3
    )
    last = residuals(solution.x)
    jacobian = cast("NDArray[np.float64]", solution.jac)
    spread = 2 * solution.cost / max(1, len(last) - len(start))
    errors = np.sqrt(np.diag(np.linalg.pinv(jacobian.T @ jacobian) * spread))
    return FittedValues(
        tuple(float(v) for v in solution.x * np.array(task.scales)),
        tuple(float(v) for v in errors * np.array(task.scales)),
        tuple(float(v) for v in last),
    )


def with_numbers(
    profile: CalibrationSpec, numbers: Sequence[Path], values: Iterable[float]
) -> CalibrationSpec:
    """The profile with other numbers."""
    for path, value in zip(numbers, values, strict=True):
        profile = _replaced(profile, path, float(value))
    return profile


def _replaced(spec: _Section, path: Path, value: float) -> _Section:
    """A section with one number below it replaced."""
    name, *rest = path
    new = _replaced(getattr(spec, name), tuple(rest), value) if rest else value
    return spec.model_copy(update={name: new})


def committed(profile: str) -> tuple[GpuSpec, CalibrationSpec]:
    """A shipped profile, and the GPU that it is of."""
    calibration = load_part("calibrations", profile).spec
    return load_part("gpus", calibration.gpu).spec, calibration


def report(profile: str) -> str:
    """Every fit of a profile as text: values with standard errors, and the errors of its rows. Each
    is made with the numbers of those before it."""
    gpu, calibration = committed(profile)
    lines = [profile]
    for task in tasks(profile):
        found = fitted(task, gpu, calibration)
        calibration = with_numbers(calibration, task.numbers, found.values)
        own = [abs(error) for error in found.residuals]
        mean, worst = sum(own) / len(own), max(own)
        lines.append(f"  {task.name}: {len(own)} rows, mean {mean:.1%}, worst {worst:.1%}")
        lines += [
            f"    {'.'.join(path):32} {value:.4g} +- {error:.2g}"
            for path, value, error in zip(task.numbers, found.values, found.errors, strict=True)
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    for name in ("h800-hopper-bf16", "h100-hopper-bf16", "a100-ampere-bf16"):
        sys.stdout.write(report(name) + "\n")
