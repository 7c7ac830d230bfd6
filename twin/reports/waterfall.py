"""From speed of light to achieved: why a step takes as long as it does, loss by loss.

The ideal step does the model's FLOP, and nothing else, at the BF16 peak of every GPU at once. What
the step takes beyond that is dealt to named losses in whole nanoseconds, so that ideal and losses
sum to the step exactly. Kernels are split with the roofline that priced them; the other losses are
the causes of the report's breakdown. All of it is the mean over ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Final, Literal

from twin.arch.count import flop_per_token
from twin.arch.kernels import of_mean
from twin.arch.ops import Layer, Op, Work
from twin.engine.cost_model import CostModel, Part
from twin.engine.passes import copies, recomputed
from twin.engine.tensor_overlap import backward_units, cut, forward_units
from twin.hardware import matmul
from twin.hardware.roofline import speed_of_light
from twin.loading.files import table
from twin.planning.types import Plan
from twin.reports.breakdown import CAUSES
from twin.reports.report import Report

LossKey = Literal[
    "extra_flop",
    "precision",
    "memory_bound",
    "efficiency",
    "launch",
    "recompute",
    "host",
    "contention",
    "imbalance",
    "exposed_tensor",
    "exposed_expert",
    "exposed_pipeline",
    "exposed_data",
    "exposed_context",
    "exposed_offload",
    "optimizer",
    "bubble",
    "other",
]

LOSSES: Final[dict[LossKey, tuple[str, str]]] = table(__name__, "LOSSES")
"""Every loss in the order of the waterfall: its name, and why it is there."""


Phase = Literal["whole", "ramp", "steady"]
"""Which part of a loss: all of it, or of an exposed transfer what falls into a rank's warm-up and
cool-down, or in between."""
PHASES: Final[dict[Phase, tuple[str, str]]] = {
    "whole": ("", ""),
    "ramp": (", ramp", ", while the pipeline fills and drains: nothing to hide it under"),
    "steady": (", steady", ", between the first backward and the last forward of a rank"),
}
"""What is added to the name and the reason of a loss."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One step of the waterfall: nanoseconds of the mean rank, and why. Only two can be negative:
    `extra_flop`, where kernels do less than the model counts, and `precision`."""

    key: LossKey
    label: str
    reason: str
    ns: int
    phase: Phase = "whole"


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The step from the ideal to what is achieved; `ideal_ns` and the losses sum to `step_ns`."""

    ideal_ns: int
    losses: tuple[Loss, ...]
    """In the order of `LOSSES`, without those that take no time."""
    step_ns: int

    def mfu(self, ns: int) -> float:
        """Model FLOP utilisation of a step that takes `ns`: 1 for the ideal one."""
        return self.ideal_ns / ns


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Seconds of kernels as each limit is put on: FLOP at the BF16 peak; at the peak of their own
    precision; roofline; calibrated efficiency; launches beside that; and what is computed again,
    with everything."""

    flop: float = 0.0
    own: float = 0.0
    roofline: float = 0.0
    efficient: float = 0.0
    launch: float = 0.0
    again: float = 0.0

    def __add__(self, other: _Kernels) -> _Kernels:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return _Kernels(*(one + more for one, more in pairs))

    def times(self, factor: float) -> _Kernels:
        return _Kernels(*(factor * one for one in astuple(self)))


def waterfall(plan: Plan, report: Report) -> Waterfall:
    """The losses between the ideal step of a plan and the step that was simulated for it."""
    kernels, row = _mean_rank(plan), report.breakdown_ns
    ideal = _ns(ideal_seconds(plan))
    parts: dict[LossKey, int] = {
        "extra_flop": _ns(kernels.flop) - ideal,
        "precision": _ns(kernels.own - kernels.flop),
        "memory_bound": _ns(kernels.roofline - kernels.own),
        "efficiency": _ns(kernels.efficient - kernels.roofline),
        "launch": _ns(kernels.launch),
        "recompute": _ns(kernels.again),
    }
    rest = row["compute"] - ideal - sum(parts.values())
    # Rounding of segments to whole nanoseconds, and products that are cut in halves only.
    parts["efficiency"] += rest
    parts |= {key: row[key] for key in LOSSES if key in CAUSES}
    losses = tuple(loss for key in LOSSES for loss in _losses(key, parts[key], report))
    return Waterfall(ideal, losses, report.step_ns)


def _losses(key: LossKey, ns: int, report: Report) -> Iterator[Loss]:
    """A loss, what is exposed in its two parts where they are known; parts of no time are left
    out."""
    exposure = report.exposure.get(key)
    sizes: dict[Phase, int] = {"whole": ns}
    if exposure is not None:
        sizes = {"ramp": exposure.ramp_ns, "steady": exposure.steady_ns}
    label, reason = LOSSES[key]
    for phase, size in sizes.items():
        if size:
            added = PHASES[phase]
            yield Loss(key, label + added[0], reason + added[1], size, phase)


def ideal_seconds(plan: Plan) -> float:
    """The model's FLOP of one step (as MFU counts them) at the dense BF16 peak of all GPUs."""
    train, gpu = plan.scenario.train, plan.scenario.cluster.node.gpu
    flop = flop_per_token(plan.scenario.model, train.sequence) * train.global_batch
    return flop / (plan.scenario.cluster.gpus * gpu.bf16_dense)


def _mean_rank(plan: Plan) -> _Kernels:
    """Seconds of all kernels of one step, mean over the stages."""
    cost_model = CostModel.of(plan)
    # Layers of one kind are one shared object: each is priced once.
    layers = {id(layer): layer for chunk in plan.chunks for layer in chunk.layers}
    priced = {key: _layer(layer, plan, cost_model) for key, layer in layers.items()}
    total = sum_of(priced[id(layer)] for chunk in plan.chunks for layer in chunk.layers)
    return total.times(plan.runs_per_chunk / plan.mesh.pipeline)


def sum_of(parts: Iterable[_Kernels]) -> _Kernels:
    """All of them."""
    return sum(parts, _Kernels())


def _layer(layer: Layer, plan: Plan, cost_model: CostModel) -> _Kernels:
    """One layer and micro-batch: forward, both backwards, and what the memory policy repeats."""
    cuts: dict[Part, frozenset[str]] = {
        "forward": cut(forward_units(layer, cost_model.overlap)),
        "backward": cut(backward_units(layer, cost_model.overlap, whole=_whole(plan))),
        "weight": frozenset(),
    }
    ops = [item for item in layer.items if isinstance(item, Op)]
    parts = (_part(op, part, cost_model, op.name in cuts[part]) for op in ops for part in cuts)
    repeated = recomputed(layer, cost_model)
    copied = (
        _streamed(work, seconds, cost_model)
        for work, seconds in copies(layer, cost_model, whole=_whole(plan))
    )
    return replace(sum_of((*parts, *copied)), again=repeated)


def _streamed(work: Work, seconds: float, cost_model: CostModel) -> _Kernels:
    """A copy: nothing but bytes, and a launch."""
    launch = work.kernels * cost_model.calibration.launch
    least = speed_of_light(work, cost_model.cluster.node.gpu)
    return _Kernels(roofline=least, efficient=seconds - launch, launch=launch)


def _part(op: Op, part: Part, cost_model: CostModel, pieces: bool) -> _Kernels:
    """The kernels of one part of an op, in pieces or whole."""
    gpu, times = cost_model.cluster.node.gpu, cost_model.pieces if pieces else 1
    work: Work = of_mean(getattr(op, part), op.load)
    uneven = op.load != 1.0
    cost = cost_model.mean_cost(op, part) if uneven else cost_model.cost(op, part, cut=pieces)
    return _Kernels(
        flop=work.flop / gpu.bf16_dense,
        own=work.flop / matmul.peak(gpu, work.product),
        roofline=speed_of_light(work, gpu),
        efficient=times * cost.busy,
        launch=times * cost.launch,
    )


def _whole(plan: Plan) -> bool:
    """Whether backward passes are whole, not in two halves. Where a schedule has both, the
    difference, of products that are cut only in halves, counts as their efficiency."""
    schedule, virtual = plan.scenario.parallel.schedule, plan.scenario.parallel.virtual
    least = schedule.warmup_microbatches(plan.mesh.pipeline, virtual, plan.microbatches)
    order = schedule.order(plan.mesh.pipeline, virtual, min(plan.microbatches, 2 * least))[0]
    return all(action.kind != "I" for action in order)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
