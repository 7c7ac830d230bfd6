"""How long an operation takes: the roofline, times one efficiency per class of kernels, plus what
each launch adds.

Source of the model: Williams, Waterman, Patterson 2009, "Roofline", CACM 52(4): time = max(FLOP /
peak, bytes / bandwidth). A calibration profile says which share of each ceiling the kernels of a
class reach. It breaks where one number per class does: small or odd shapes (fewer tiles than SMs),
clocks that fall under sustained power, kernels that share SMs with communication.
"""

from __future__ import annotations

from twin.arch.ops import OpClass, Work
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec


def seconds(
    op_class: OpClass,
    work: Work,
    gpu: GpuSpec,
    calibration: CalibrationSpec,
    backward: bool = False,
) -> float:
    """Seconds of one operation on one GPU, at full speed: nothing else on its SMs or its memory.

    `backward` matters for attention only, whose two directions are different kernels with
    efficiencies of their own.
    """
    compute = work.flop / (gpu.bf16_dense * _efficiency(op_class, calibration, backward))
    memory = work.bytes / (gpu.memory_bandwidth * calibration.bandwidth)
    return max(compute, memory) + work.kernels * calibration.launch


def speed_of_light(work: Work, gpu: GpuSpec) -> float:
    """Seconds below which physics does not let the work finish: full BF16 peak, full memory
    bandwidth, free launches."""
    return max(work.flop / gpu.bf16_dense, work.bytes / gpu.memory_bandwidth)


def _efficiency(op_class: OpClass, calibration: CalibrationSpec, backward: bool) -> float:
    """Share of the BF16 peak that kernels of a class reach."""
    match op_class:
        case "gemm":
            return calibration.gemm
        case "grouped_gemm":
            return calibration.grouped_gemm
        case "attention":
            return calibration.attention_backward if backward else calibration.attention_forward
        case "bandwidth":
            return 1.0  # they wait for memory: their arithmetic is never the ceiling
