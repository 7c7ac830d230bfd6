"""What the twin says that a measured case takes: the oracle of the fits."""

from __future__ import annotations

from reference.measure.points import TimedCase
from twin.arch.ops import OpClass, Product, Work
from twin.evidence.calibrate.measure_folder import KINDS
from twin.hardware.roofline import seconds
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec


def twin_seconds(case: TimedCase, gpu: GpuSpec, profile: CalibrationSpec) -> float:
    """Seconds by the twin's own roofline."""
    kind, work = twin_work(case)
    return seconds(kind, work, gpu, profile, case.op == "attention_backward")


def twin_work(case: TimedCase) -> tuple[OpClass, Work]:
    """The case in the twin's words."""
    shape = case.shape
    if case.op.startswith("attention"):
        width = (shape["query_key"] + shape["value"]) / 2
        return "attention", Work(case.flop, case.bytes, case.kernels, width=width)
    if "rows" not in shape or "inner" not in shape:
        return KINDS.get(case.op, "bandwidth"), Work(0.0, case.bytes, case.kernels)
    groups = shape.get("groups", 1)
    weight = case.op.endswith("_weight")
    rows, inner = shape["rows"], shape["inner"]
    # The twin's rows, or inner sums of a weight's gradient, are those of all groups.
    product = Product(
        rows if weight else rows * groups,
        shape["cols"],
        inner * groups if weight else inner,
        groups,
        weight=weight,
    )
    kind: OpClass = "grouped_gemm" if groups > 1 else "gemm"
    return kind, Work(case.flop, case.bytes, case.kernels, product)
