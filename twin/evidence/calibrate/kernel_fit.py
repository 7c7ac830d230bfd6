"""Measured kernels to the numbers of a profile: a task per class, each with what was found before.

Bytes come first, since products wait for memory too; then kinds of kernels that wait for it, dense
products, groups, gradients of weights, and attention by direction. Each task has its own rows and
sets of factors, and the same judge as step times (`twin.evidence.calibrate.choice`). A class
without rows stays as it is in the base.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from twin.evidence.calibrate import factors as numbers
from twin.evidence.calibrate.choice import ChosenFactors, choose, sets_of
from twin.evidence.calibrate.factors import Array, Factor
from twin.evidence.calibrate.kernels import Kernel
from twin.loading.files import read_data
from twin.spec.calibration import (
    CalibrationSpec,
    KernelsSpec,
    MatmulSpec,
    MatmulsSpec,
    StreamingSpec,
)
from twin.spec.cluster import GpuSpec
from twin.units import format_quantity

FEWEST: Final = 4
"""Kernels of a class below which its numbers stay those of the base."""
RAMP: Final = 100.0
"""Where a ramp starts that the base does not have: the shipped bf16 products' is 112."""


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A class of kernels: which are in it, and the sets of factors that are tried."""

    name: str
    takes: Callable[[Kernel], bool]
    sets: tuple[tuple[Factor, ...], ...]


@dataclass(frozen=True, slots=True)
class FittedTask:
    """A task with its kernels and what they told."""

    name: str
    kernels: tuple[Kernel, ...]
    chosen: ChosenFactors


def tasks(base: CalibrationSpec) -> tuple[KernelTask, ...]:
    """The classes that are fitted of a base, which may have a law of GEMMs by shape."""
    by_shape = base.matmuls is not None and base.matmuls.bf16 is not None
    kinds = [kind for kind in StreamingSpec.model_fields if getattr(base.streaming, kind, None)]
    shape = " by shape" if by_shape else ""
    return (
        KernelTask("memory", lambda k: k.op_class == "bandwidth", _sets("memory")),
        *map(_kind, kinds),
        KernelTask(
            "products",
            lambda k: k.op_class == "gemm" and not (by_shape and (_weight(k) or k.backward)),
            _sets(f"products{shape}"),
        ),
        KernelTask(
            "grouped products",
            lambda k: k.op_class == "grouped_gemm" and not (by_shape and _weight(k)),
            _sets(f"grouped products{shape}"),
        ),
        *((KernelTask("gradients of weights", _weight, _sets("gradients of weights")),) * by_shape),
        *map(_attention, ("forward", "backward")),
    )


def _kind(kind: str) -> KernelTask:
    return KernelTask(kind, lambda k: k.op_class == kind, _sets("memory", f"streaming.{kind}."))


def _attention(direction: str) -> KernelTask:
    backward, name = direction == "backward", f"attention, {direction}"
    return KernelTask(
        name, lambda k: k.op_class == "attention" and k.backward == backward, _sets(name)
    )


@cache
def _numbers() -> Mapping[str, Mapping[str, tuple[str, float]]]:
    return read_data(Path(__file__).with_name("kernel_factors.yaml"))


def _sets(name: str, section: str = "") -> tuple[tuple[Factor, ...], ...]:
    """The sets of factors of a class: the first factor, it with each other, all."""
    paths = [(f"{section}{path}", *given) for path, given in _numbers()[name].items()]
    factors = [
        Factor(path, meaning, (f"calibration.{path}",), spread) for path, meaning, spread in paths
    ]
    return _growing(factors)


def _growing(factors: Sequence[Factor]) -> tuple[tuple[Factor, ...], ...]:
    first, *others = (factor.name for factor in factors)
    names = [first, *(f"{first}+{other}" for other in others)]
    return sets_of(factors, *dict.fromkeys([*names, "+".join((first, *others))]))


def _dense(kernel: Kernel) -> bool:
    return kernel.op_class == "gemm" and not _weight(kernel)


def _weight(kernel: Kernel) -> bool:
    return kernel.work.product is not None and kernel.work.product.weight


def fit_kernels(
    kernels: Sequence[Kernel], gpu: GpuSpec, base: CalibrationSpec
) -> tuple[CalibrationSpec, tuple[FittedTask, ...]]:
    """The profile that the kernels tell, and the tasks that had rows enough."""
    profile, done = base, list[FittedTask]()
    for task in tasks(base):
        own = tuple(kernel for kernel in kernels if task.takes(kernel))
        if len(own) < FEWEST:
            continue
        chosen = _fit(own, gpu, profile, task.sets)
        profile = numbers.scaled("calibration", profile, chosen.best.values())
        done.append(FittedTask(task.name, own, chosen))
    return profile, tuple(done)


def _fit(
    own: Sequence[Kernel],
    gpu: GpuSpec,
    profile: CalibrationSpec,
    sets: Sequence[tuple[Factor, ...]],
) -> ChosenFactors:
    known: dict[tuple[object, ...], CalibrationSpec] = {}

    def under(factors: dict[Factor, float]) -> CalibrationSpec:
        key = tuple((factor.name, value) for factor, value in factors.items())
        if key not in known:
            known[key] = numbers.scaled("calibration", profile, factors)
        return known[key]

    def bounds(factors: Sequence[Factor]) -> tuple[Array, Array]:
        return numbers.bounds(factors, {"calibration": [profile]})

    return choose(lambda row, by: own[row].error(gpu, under(by)), len(own), sets, bounds)


def spans(kernels: Sequence[Kernel]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Least and most sides and inner sums of the products measured."""
    products = [kernel.work.product for kernel in kernels if kernel.work.product]
    if not products:
        return None
    sides = [side for p in products for side in (max(1, p.rows // p.groups), p.cols)]
    ks = [p.k // p.groups if p.weight else p.k for p in products]
    return (min(sides), max(sides)), (min(ks), max(ks))


def start(profile: CalibrationSpec, kernels: Sequence[Kernel]) -> CalibrationSpec:
    """A base that knows apart what the kernels can tell apart: bf16 products by shape, and kinds of
    kernels that wait for memory. What it has stays; the rest begins at what all have in common."""
    return with_kinds(with_law(profile, kernels), kernels)


def with_kinds(profile: CalibrationSpec, kernels: Sequence[Kernel]) -> CalibrationSpec:
    """A base that knows each kind of which there are enough kernels."""
    counts = Counter(kernel.op_class for kernel in kernels)
    launch = format_quantity(profile.launch, "seconds")
    common = KernelsSpec(bandwidth=profile.bandwidth, launch=launch)  # pyright: ignore[reportArgumentType]
    known = profile.streaming or StreamingSpec()
    new = {
        kind: common
        for kind in StreamingSpec.model_fields
        if getattr(known, kind) is None and counts[kind] >= FEWEST
    }
    return (
        profile.model_copy(update={"streaming": known.model_copy(update=new)}) if new else profile
    )


def with_law(profile: CalibrationSpec, kernels: Sequence[Kernel]) -> CalibrationSpec:
    """A base that knows bf16 products by shape: its own law, or one that begins at its efficiency,
    where there are dense products enough to tell one."""
    dense = [kernel for kernel in kernels if _dense(kernel)]
    measured = spans(dense)
    known = profile.matmuls or MatmulsSpec()
    if known.bf16 is not None or measured is None or len(dense) < 3 * FEWEST:
        return profile
    law = MatmulSpec(
        efficiency=profile.gemm,
        ramp=RAMP,
        launch=format_quantity(profile.launch, "seconds"),  # pyright: ignore[reportArgumentType]
        whole_tiles=False,
        sides=measured[0],
        inner=measured[1],
    )
    return profile.model_copy(update={"matmuls": known.model_copy(update={"bf16": law})})
