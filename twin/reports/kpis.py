"""The key figures of a run (`twin.spec.kpis`) from its plan and its breakdown.

Definitions follow the public contract (docs/report.md, "What the words mean"). Fractions are of the
step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twin.arch import ALTERNATE, ATTENTION_CORE, again, layers
from twin.arch.count import flop_per_token
from twin.arch.ops import Op, Shape
from twin.planning.types import Plan
from twin.reports.breakdown import exposed_communication_ns
from twin.reports.cost import bill
from twin.reports.with_failures import with_failures
from twin.spec.kpis import KPIS, Better, Kpi, Unit

if TYPE_CHECKING:  # simulating failures takes part in few runs
    from twin.goodput import Goodput

__all__ = ["KPIS", "Better", "Kpi", "Unit", "kpis", "recomputed_flop"]


def kpis(
    plan: Plan,
    step_ns: int,
    breakdown_ns: Mapping[str, int],
    goodput: Goodput | None = None,
) -> dict[str, float | None]:
    """The key figures of one run in SI units (days, hours and dollars where the name says so);
    None: unknown. `goodput`: what failures leave; those figures are unknown without.

    MFU counts model FLOP only (`twin.arch.count.flop_per_token`) against the dense BF16 peak; HFU
    adds what the backward pass computes again (Korthikanti et al. 2022, section 5, keep the same
    two numbers apart)."""
    train, gpus, step = plan.scenario.train, plan.mesh.ranks, step_ns / 1e9
    peak = plan.scenario.cluster.node.gpu.bf16_dense
    tokens_per_second = train.global_batch / step
    model_flop = flop_per_token(plan.scenario.model, train.sequence) * train.global_batch
    seconds = train.tokens / tokens_per_second
    gpu_hours = gpus * seconds / 3600
    paid = bill(plan.scenario.cluster, plan.scenario.cost, gpu_hours, breakdown_ns)
    figures = {
        "step_seconds": step,
        "tokens_per_second": tokens_per_second,
        "tokens_per_second_per_gpu": tokens_per_second / gpus,
        "mfu": model_flop / step / (gpus * peak),
        "hfu": (model_flop + recomputed_flop(plan)) / step / (gpus * peak),
        "model_tflops_per_gpu": model_flop / step / gpus / 1e12,
        "bubble_fraction": breakdown_ns["bubble"] / step_ns,
        "exposed_communication_seconds": exposed_communication_ns(breakdown_ns) / 1e9,
        "peak_device_bytes": plan.memory.peak.peak_bytes,
        "peak_host_bytes_per_node": plan.memory.host_per_node,
        "days": seconds / 86400,
        "gpu_hours": gpu_hours,
        **paid.figures,
    }
    return with_failures(figures, goodput)


def recomputed_flop(plan: Plan) -> float:
    """Model FLOP of one step, over all ranks, that the backward pass computes a second time under
    the memory policy.

    `full`: one more forward of every transformer layer; `attention_core`: of the kernels of the
    attention core only; `alternate_products`: of every second product. Attention counts as causal,
    as in the model FLOP that this is added to, also where unfused kernels compute the masked
    half."""
    scenario = plan.scenario
    train, policy = scenario.train, scenario.memory.recompute
    unfused = train.attention_kernel == "unfused"
    # Of a whole sequence on one rank: what several tensor ranks repeat is one model FLOP, too.
    shape = Shape(1, train.sequence, flash=not unfused, separate=ALTERNATE in policy)
    whole = layers(scenario.model, shape)
    per_sequence = sum(
        item.forward.flop * (0.5 if item.name in ATTENTION_CORE and unfused else 1.0)
        for layer in whole
        for item in layer.items
        if isinstance(item, Op) and item.name in again(layer, policy)
    )
    return per_sequence * train.global_batch_sequences
