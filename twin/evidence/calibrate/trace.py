"""Four layers of DeepSeek-V3 by class of kernels, against DeepSeek's own training trace.

The trace (profile-data, train.json) is of one forward and one backward of four layers with experts
on one of 64 H800, in FP8, while DeepEP holds SMs nearly all the time. Nothing is fitted to its
totals but attention and `contention`: the rest checks that the twin counts the kernels that ran.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml import YAML

from twin.arch import again, layers
from twin.arch.ops import Op, Shape, Work
from twin.hardware import price, slowdown
from twin.loading import load_part
from twin.loading.files import shipped_folder
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec

PROFILE: Final = "h800-hopper-bf16"
SHAPE: Final = Shape(sequences=1, sequence=4096, expert=64, precision="fp8")
"""What ran, with balanced routing (profile-data, README)."""
RECOMPUTED: Final = ("norms", "swiglu", "mla_up")
"""What DeepSeek-V3 runs again (arXiv:2412.19437, section 3.2.3, and SwiGLU in 3.3.3)."""
ROWS: Final = {
    "grouped": "grouped-fp8-gemm",
    "weights, experts' up": "fp8-wgrad-accum-gemm-b",
    "weights, all others": "fp8-wgrad-accum-gemm-a",
    "dense": "fp8-dense-gemm",
    "attention, forward": "flash-attn-fwd-192-128",
    "attention, backward": "flash-attn-bwd-192-128",
    "casts": "fp8-cast",
}
"""Classes of kernels, with what their row is called behind `profile-data-train-`. Calls tell the
two kernels for weights apart: 16 are the four experts' up-projections of four layers."""


@dataclass(frozen=True, slots=True)
class Part:
    """One class of kernels of the trace: seconds alone, beside DeepEP, and as measured."""

    name: str
    alone: float
    beside: float
    measured: float


def trace() -> tuple[Part, ...]:
    """Every class of kernels of the trace."""
    gpu, profile = load_part("gpus", "h800").spec, load_part("calibrations", PROFILE).spec
    alone: defaultdict[str, float] = defaultdict(float)
    beside: defaultdict[str, float] = defaultdict(float)
    for name, op, work, backward in _runs():
        cost = price(op.kind, work, gpu, profile, backward)
        alone[name] += cost.seconds
        beside[name] += cost.seconds * _slower(cost.sm_bound, gpu, profile)
    measured = _measured()
    return tuple(Part(name, alone[name], beside[name], measured[row]) for name, row in ROWS.items())


def _slower(sm_bound: float, gpu: GpuSpec, profile: CalibrationSpec) -> float:
    """How many times as long a kernel takes beside DeepEP."""
    return slowdown(sm_bound, profile.expert_sms, gpu.sms, profile.contention)


def _runs() -> Iterator[tuple[str, Op, Work, bool]]:
    """Every kernel that has a row: its class, op and work, and whether it is backward."""
    model = load_part("models", "deepseek-v3-4moe-layers").spec
    for layer in (layer for layer in layers(model, SHAPE) if layer.kind == "moe"):
        repeated = again(layer, RECOMPUTED)
        for op in (item for item in layer.items if isinstance(item, Op)):
            runs = [(op.forward, False), (op.backward, True), (op.weight, True)]
            for work, backward in runs + runs[: op.name in repeated]:
                name = _class(op, work, backward=backward)
                if work.kernels and name in ROWS:
                    yield name, op, work, backward


def _class(op: Op, work: Work, *, backward: bool) -> str:
    """The class of a kernel; empty for those without a row."""
    product = work.product
    match op.kind:
        case "attention":
            return "attention, backward" if backward else "attention, forward"
        case "cast":
            return "casts" if op.name.endswith(("_cast", "_turn")) else ""
        case _ if product is None or product.precision == "bf16":
            return ""
        case _ if product.weight:
            return "weights, experts' up" if op.name == "experts_up" else "weights, all others"
        case "grouped_gemm":
            return "grouped"
        case _:
            return "dense"


def _measured() -> dict[str, float]:
    """Seconds of each row of the trace."""
    found: dict[str, float] = {}
    for file in ("trace-h800", "attention-h800"):
        path = shipped_folder() / "published" / f"{file}.yaml"
        # ruamel leaves the type of its streams open.
        text: dict[str, Any] = YAML(typ="safe").load(path)  # pyright: ignore[reportUnknownMemberType]
        for row in text["measurements"]:
            name = row["id"].removeprefix("profile-data-train-")
            found[name] = row["metrics"]["total_ms"] * 1e-3
    return found
