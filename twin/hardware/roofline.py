"""How long an operation takes: the roofline, with the efficiencies of a calibration profile, plus
what each launch adds.

Source of the model: Williams, Waterman, Patterson 2009, "Roofline", CACM 52(4): time = max(FLOP /
peak, bytes / bandwidth). A profile says which share of each ceiling the kernels of a class reach;
of matrix products it may know more, by shape (`twin.hardware.matmul`), and of attention how it
fares where there are few FLOP per byte, and of kernels that wait for memory by what they do. Scans
(`twin.arch.mixer`) reach one share of both ceilings, by direction. All other classes have one
number, which breaks for small or odd shapes. Everything here is at full speed, alone on the GPU:
what communication beside it costs is told below.

How much slower a kernel runs while communication holds SMs and moves data beside it.

What SMs bound takes as much longer as there are fewer of them; what memory bounds does not, since
the rest still saturates it. On top, everything loses a share to traffic through L2 and memory, and
to the clock that falls with the power drawn. One share for all kernels is the simplest law that the
training trace of DeepSeek-V3 allows: beside DeepEP's 20 of 132 SMs its FP8 products reach 0.78
(dense; gradients of the experts' larger weights) to 0.81 (grouped) of what they reach alone, of
which the SMs explain 0.85; docs/kernels.md has the table. It breaks where
communication nears the memory's bandwidth, and for kernels whose blocks do not fit the remaining
SMs evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from twin.arch.ops import SCAN_CLASSES, OpClass, Scaling, Work
from twin.arch.remembered import remembered
from twin.hardware import matmul
from twin.spec.base import Spec
from twin.spec.calibration import SCANS, CalibrationSpec, KernelsSpec
from twin.spec.cluster import GpuSpec


def slowdown(sm_share: float, held: int, sms: int, contention: float) -> float:
    """How many times as long a kernel takes while `held` of `sms` SMs are taken: `sm_share` of its
    time alone is bound by SMs; `contention` is the share of speed lost beyond them. 1 where nothing
    is held."""
    if held == 0:
        return 1.0
    left = 1.0 - held / sms
    return (sm_share / left + 1.0 - sm_share) / (1.0 - contention)


REMEMBERED: Final = 1 << 14
"""Works whose prices are kept, per GPU and profile: under 10 MB."""


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds of an operation, and of what they are made: arithmetic and memory, each as if it were
    alone (they overlap), and launches."""

    arithmetic: float
    memory: float
    launch: float
    overlaps: bool
    """True where the longer of the two hides the other; products hide it in part."""

    @property
    def busy(self) -> float:
        """Seconds without launches."""
        if self.overlaps:
            return max(self.arithmetic, self.memory)
        return matmul.joined(self.arithmetic, self.memory)

    @property
    def seconds(self) -> float:
        """Seconds of the operation."""
        return self.busy + self.launch

    @property
    def sm_bound(self) -> float:
        """Share of the seconds that SMs bound, which lengthens with arithmetic: d log seconds / d
        log arithmetic. The rest waits for memory, which fewer SMs still saturate, or for a launch.
        """
        if self.arithmetic == 0.0:
            return 0.0
        busy = self.busy
        share = (self.arithmetic / busy) ** matmul.OVERLAP
        if self.overlaps:
            share = float(self.arithmetic > self.memory)
        return share * busy / (busy + self.launch)


def price(
    op_class: OpClass,
    work: Work,
    gpu: GpuSpec,
    calibration: CalibrationSpec,
    backward: bool = False,
) -> Price:
    """What one operation on one GPU costs. `backward` matters for attention and scans only, whose
    two directions are different kernels with efficiencies of their own."""
    apart = measured_apart(op_class, calibration)
    share = calibration.bandwidth if apart is None else apart.bandwidth
    if apart is not None and backward:
        share *= apart.backward
    if op_class in SCAN_CLASSES:
        share = efficiency(op_class, work, calibration, backward)
    known = matmul.law(work.product, calibration)
    if known is not None and known.bandwidth is not None:
        share = known.bandwidth
    memory = work.bytes / (gpu.memory_bandwidth * share)
    if known is not None and work.product is not None:
        arithmetic = matmul.arithmetic(work.flop, work.product, known, gpu)
        arithmetic /= sustained(gpu, calibration)
        launch = matmul.launches(work.product, work.kernels, known)
        return Price(arithmetic, memory, launch, overlaps=False)
    rate = matmul.peak(gpu, work.product) * sustained(gpu, calibration)
    rate *= efficiency(op_class, work, calibration, backward)
    launch = work.kernels * _launch(op_class, calibration, backward)
    return Price(work.flop / rate, memory, launch, overlaps=True)


def sustained(gpu: GpuSpec, calibration: CalibrationSpec) -> float:
    """Share of the tensor cores' speed that a GPU keeps at its power limit.

    Between two limits clocks go with the cube root of the power above idle: switching takes the
    clock times the square of the voltage, which falls with the clock (Mudge 2001, "Power: a
    first-class architectural design constraint", IEEE Computer 34(4)). It breaks where voltage is
    at its lowest, below half of the limit or so."""
    known, power = calibration.power, gpu.power
    if known is None or power is None:
        return calibration.sustained
    ratio = (power.max - power.idle) / (known - power.idle)
    return min(1.0, calibration.sustained * ratio ** (1 / 3))


Prices: TypeAlias = Callable[[OpClass, Work, bool], Price]
"""The price of a work of a class of kernels, of its backward pass or not."""


@remembered(8)
def prices(gpu: GpuSpec, calibration: CalibrationSpec) -> Prices:
    """`price` on one GPU under one profile, which remembers the works it was asked for last:
    layers, passes and layouts ask for the same again and again."""

    @remembered(REMEMBERED)
    def of(op_class: OpClass, work: Work, backward: bool) -> Price:
        return price(op_class, work, gpu, calibration, backward)

    return of


def with_scaling(calibration: CalibrationSpec, scaling: Scaling) -> CalibrationSpec:
    """The profile for products in FP8 with scales as these: its own are of one per tensor."""
    known = calibration.matmuls
    if scaling != "mx" or known is None or known.fp8 is None:
        return calibration
    reached = known.fp8.efficiency * known.fp8.scaled
    slower = known.fp8.model_copy(update={"efficiency": reached, "scaled": 1.0})
    return calibration.model_copy(update={"matmuls": known.model_copy(update={"fp8": slower})})


_STARTS: Final = ("launch", "attention_forward_launch", "attention_backward_launch")


def without_launches(calibration: CalibrationSpec) -> CalibrationSpec:
    """The profile for a thread that issues and runs kernels itself: what starts them is the
    software's (`HostThreadSpec.ahead`), so that it is not counted twice."""

    def free(part: Any, fields: Iterable[str]) -> Any:
        return None if part is None else part.model_copy(update=dict.fromkeys(fields, 0.0))

    def free_each(parts: Spec | None, fields: Iterable[str]) -> Any:
        if parts is None:
            return None
        own = {name: free(getattr(parts, name), fields) for name in type(parts).model_fields}
        return parts.model_copy(update=own)

    return calibration.model_copy(
        update={
            **dict.fromkeys(_STARTS, 0.0),
            "matmuls": free_each(calibration.matmuls, ("launch", "group_launch")),
            "streaming": free_each(calibration.streaming, ("launch",)),
        }
    )


def seconds(
    op_class: OpClass,
    work: Work,
    gpu: GpuSpec,
    calibration: CalibrationSpec,
    backward: bool = False,
) -> float:
    """Seconds of one operation on one GPU, at full speed."""
    return price(op_class, work, gpu, calibration, backward).seconds


def speed_of_light(work: Work, gpu: GpuSpec) -> float:
    """Seconds below which physics does not let the work finish: full peak of its precision, full
    memory bandwidth, free launches."""
    return max(work.flop / matmul.peak(gpu, work.product), work.bytes / gpu.memory_bandwidth)


def has_fp4(calibration: CalibrationSpec) -> bool:
    """Whether the profile knows products in FP4; otherwise those in FP8 stand for them."""
    return calibration.matmuls is not None and calibration.matmuls.fp4 is not None


def efficiency(
    op_class: OpClass, work: Work, calibration: CalibrationSpec, backward: bool = False
) -> float:
    """Share of the peak that kernels of a class reach, where no law of shapes says more."""
    match op_class:
        case "gemm":
            return calibration.gemm
        case "grouped_gemm":
            return calibration.grouped_gemm
        case "attention":
            return _attention(work, calibration, backward)
        case "scan" | "state_scan":
            known = calibration.scan_backward if backward else calibration.scan_forward
            return SCANS[op_class][backward].usual if known is None else known
        case _:
            return 1.0  # they wait for memory: their arithmetic is never the ceiling


def apart_as(op_class: OpClass, calibration: CalibrationSpec) -> str | None:
    """The kind in `calibration.streaming` whose numbers hold for a class: its own, of permutations
    else those of gathers; None where it has neither."""
    known = calibration.streaming
    kinds = ("permute", "gather") if op_class == "permute" else (op_class,)
    return next((kind for kind in kinds if getattr(known, kind, None) is not None), None)


def measured_apart(op_class: OpClass, calibration: CalibrationSpec) -> KernelsSpec | None:
    """What the profile knows of one kind of kernels that wait for memory, if anything."""
    kind = apart_as(op_class, calibration)
    return None if kind is None else getattr(calibration.streaming, kind)


def _launch(op_class: OpClass, calibration: CalibrationSpec, backward: bool) -> float:
    """What each kernel of a class adds, of attention in one direction."""
    apart = measured_apart(op_class, calibration)
    own = None if apart is None else apart.launch
    if op_class == "attention":
        forward = calibration.attention_forward_launch
        own = calibration.attention_backward_launch if backward else forward
    return calibration.launch if own is None else own


def _attention(work: Work, calibration: CalibrationSpec, backward: bool) -> float:
    """Of attention: less where few FLOP come on each byte, as with short sequences, and on each
    exponential, as with narrow heads."""
    if backward:
        share, ramp = calibration.attention_backward, calibration.attention_backward_ramp
        narrow = calibration.attention_backward_width
    else:
        share, ramp = calibration.attention_forward, calibration.attention_forward_ramp
        narrow = calibration.attention_forward_width
    short = ramp * work.bytes / work.flop if work.flop else 0.0
    return share / (1.0 + short + (narrow / work.width if work.width else 0.0))
