"""The key figures of a run (`twin.spec.kpis`) from its plan and its breakdown.

Definitions follow the public contract (docs/report.md, "What the words mean"). Fractions are of the
step.

The key figures of a run with its failures, beside those without: `days`, `gpu_hours` and
`cost_usd` never count any.

Rent and amortisation go on while a job is down, so its cost grows as its days. (Energy that is paid
beside them grows a little less: a cluster that waits draws less than one that trains.)"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from math import exp, hypot, log
from typing import TYPE_CHECKING, Final, cast

from twin.arch.count import flop_per_token
from twin.arch.ops import Op, Shape
from twin.arch.recompute import ALTERNATE, ATTENTION_CORE, again
from twin.arch.stack import layers
from twin.planning.types import Plan, Warning
from twin.reports.breakdown import exposed_communication_ns
from twin.reports.cost import bill

if TYPE_CHECKING:
    from twin.goodput import Goodput


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


Interval = tuple[float, float]

NO_GOODPUT: Final = Warning(
    "no-goodput",
    "Days and cost are without failures: the scenario has no section goodput, so goodput_fraction, "
    "days_with_failures and cost_usd_with_failures are unknown.",
)


def goodput_of(plan: Plan, step_ns: int) -> Goodput | None:
    """What the failures of a run leave of its time; None where the scenario says nothing of them.
    The room is not even imported then."""
    if plan.scenario.goodput is None:
        return None
    return cast("Goodput", import_module("twin.goodput").goodput(plan, step_ns / 1e9))


def with_failures(
    figures: Mapping[str, float | None], goodput: Goodput | None
) -> dict[str, float | None]:
    """The key figures, those with failures filled in; None: unknown."""
    fraction = goodput.fraction if goodput else None
    days = goodput.days_with_failures if goodput else None
    cost = figures["cost_usd"]
    return {
        **figures,
        "goodput_fraction": fraction,
        "days_with_failures": days,
        "cost_usd_with_failures": cost / fraction if cost is not None and fraction else None,
    }


def with_spans(
    spans: Mapping[str, Interval | None],
    figures: Mapping[str, float | None],
    goodput: Goodput | None,
) -> dict[str, Interval | None]:
    """The 80 % intervals, those with failures filled in: of the effective share, what 80 % of the
    simulated runs made; of days and cost, this beside that of the step, as independent factors."""
    found = {**spans, "goodput_fraction": goodput.interval if goodput else None}
    for key, without in (("days_with_failures", "days"), ("cost_usd_with_failures", "cost_usd")):
        found[key] = _longer(spans.get(without), figures.get(without), goodput)
    return found


def _longer(span: Interval | None, value: float | None, goodput: Goodput | None) -> Interval | None:
    """A span divided by an uncertain fraction: distances in logarithms add up as those of
    independent errors do."""
    if span is None or not value or goodput is None or not min(goodput.interval):
        return None
    low, high = goodput.interval
    middle = value / goodput.fraction
    below = hypot(log(value / span[0]), log(high / goodput.fraction))
    above = hypot(log(span[1] / value), log(goodput.fraction / low))
    return middle * exp(-below), middle * exp(above)
