"""The key figures of a run (`twin.spec.kpis`) from its plan and its breakdown.

Definitions follow the public contract (docs/report.md, "What the words mean"). Fractions are of the
step.

The key figures of a run with its failures, beside those without: `days`, `gpu_hours` and
`cost_usd` never count any.

Rent and amortisation go on while a job is down, so its cost grows as its days. (Energy that is paid
beside them grows a little less: a cluster that waits draws less than one that trains.)

How much worse a candidate may be than its baseline: `step_seconds > +2%`, read and judged.

A limit names the change that is too much, as `FIGURE OPERATOR CHANGE`. `CHANGE` has a sign: `+2%`
is a share of the baseline's value, `+0.5s` a difference in the figure's own dimension; of figures
that are shares themselves, `-2%` is again relative and `-0.02` is two points of a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from twin.spec.memory import MemorySpec

if TYPE_CHECKING:
    from twin.goodput import Goodput
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from twin.errors import FieldError
from twin.reports.compare import CandidateDelta, KpiDelta
from twin.reports.table import digits, show
from twin.spec.expect import FIGURES, FITS, ORDERS, bound, check_order, cut, find_figure
from twin.spec.kpis import Kpi, Unit


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
    train, gpus, step = plan.scenario.train, plan.scenario.cluster.gpus, step_ns / 1e9
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
    train, per_sequence = plan.scenario.train, 0.0
    unfused = train.attention_kernel == "unfused"
    for policy in plan.policies:
        # Of a whole sequence on one rank: what several tensor ranks repeat is one model FLOP, too.
        again_named = policy.recompute
        shape = Shape(1, train.sequence, flash=not unfused, separate=ALTERNATE in again_named)
        whole = layers(plan.scenario.model, shape)
        per_sequence += sum(
            item.forward.flop * (0.5 if item.name in ATTENTION_CORE and unfused else 1.0)
            for place in _places(plan, policy)
            for item in whole[place].items
            if isinstance(item, Op) and item.name in again(whole[place], again_named)
        )
    return per_sequence / plan.mesh.copies * train.global_batch_sequences


def _places(plan: Plan, policy: MemorySpec) -> Iterator[int]:
    """Places in the model of the layers that keep activations by a policy, of each copy."""
    for chunk in plan.chunks:
        # The embedding is before the first layer.
        embedded = bool(chunk.layers) and chunk.layers[0].kind == "embedding"
        first = 1 + chunk.first_layer - embedded
        yield from (first + at for at, one in enumerate(chunk.layers) if one.policy == policy)


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


_FORM = "write FIGURE OPERATOR CHANGE, such as `step_seconds > +2%`"


@dataclass(frozen=True, slots=True)
class Limit:
    """A change that is too much: a share of the baseline where `relative`, else in the figure's own
    unit."""

    text: str
    kpi: Kpi
    operator: str
    change: float
    relative: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """A candidate beyond a limit. `change` is a share of the baseline where `relative`, else in the
    figure's unit; None where it is unknown, which fails, or grew from zero."""

    text: str
    figure: str
    name: str
    hash: str
    baseline: float | None
    candidate: float | None
    change: float | None
    relative: bool


def read_limit(written: str) -> Limit:
    """The limit that a text states. Raises `FieldError` or `QuantityError`."""
    figure, operator, right = cut(written, _FORM)
    if figure == FITS:
        message = "`fits` does not change by an amount"
        raise FieldError(
            "TW052", message, "leave it out: exit code 4 says when a plan does not fit"
        )
    kpi = find_figure(figure)
    check_order(kpi, operator)
    sign, size = right[0], right[1:].strip()
    if sign not in "+-":
        message = f"`{right}` says not which way `{figure}` changes from the baseline"
        raise FieldError("TW050", message, f"write `+{right}` or `-{right}`, or a share like `+2%`")
    if not size:
        raise FieldError("TW050", f"`{written}` names no change", _FORM)
    relative = size.endswith("%")
    change = _percent(size) if relative else bound(kpi, size)
    return Limit(written, kpi, operator, change if sign == "+" else -change, relative)


def failures(deltas: Sequence[CandidateDelta], limits: tuple[Limit, ...]) -> tuple[Failure, ...]:
    """Every candidate that is beyond a limit, limit by limit."""
    return tuple(
        _failure(limit, delta)
        for limit in limits
        for delta in deltas
        if _is_beyond(limit, _change(limit, delta.kpis[limit.kpi.key]))
    )


def sentence(failure: Failure) -> str:
    """What failed: `selective is beyond mfu < -1%: 40.1 % became 38.9 % (-3.00 %).`"""
    unit = FIGURES[failure.figure].unit
    values = f"{show(failure.baseline, unit)} became {show(failure.candidate, unit)}"
    return f"{failure.name} is beyond {failure.text}: {values}{_amount(failure, unit)}."


def _amount(failure: Failure, unit: Unit) -> str:
    if failure.change is None:
        return ""
    sign, size = "-" if failure.change < 0 else "+", abs(failure.change)
    if failure.relative:
        return f" ({sign}{digits(100 * size)} %)"
    return f" ({sign}{digits(size) if unit == '%' else show(size, unit)})"


def _percent(written: str) -> float:
    if not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+) ?%", written):
        raise FieldError("TW050", f"`{written}` is no share of the baseline", "write `+2%`")
    share = float(written[:-1]) / 100
    if not isfinite(share):
        raise FieldError("TW015", f"`{written}` is more than a number can hold", "write `+2%`")
    return share


def _change(limit: Limit, found: KpiDelta) -> float | None:
    """The change that the limit is about: from zero, any is infinitely large."""
    if not limit.relative or found.delta is None:
        return found.delta
    if found.relative is None:
        return 0.0 if found.delta == 0 else inf if found.delta > 0 else -inf
    return found.relative


def _is_beyond(limit: Limit, change: float | None) -> bool:
    return change is None or ORDERS[limit.operator](change, limit.change)


def _failure(limit: Limit, delta: CandidateDelta) -> Failure:
    found = delta.kpis[limit.kpi.key]
    change = _change(limit, found)
    return Failure(
        text=limit.text,
        figure=limit.kpi.key,
        name=delta.name,
        hash=delta.hash,
        baseline=found.baseline,
        candidate=found.candidate,
        change=change if change is not None and isfinite(change) else None,
        relative=limit.relative,
    )
