"""What a plan says of the layers that a trace shows: as many forward and backward ones of the
commonest kind, as its schedule runs them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final

from twin.arch.ops import BLOCKS, Layer, Op
from twin.engine.cost_model import CostModel
from twin.engine.overlap import length_ns, paired
from twin.engine.passes import backward_pass, forward_pass, recomputed
from twin.engine.program import EXPERT, OverlapLoss, Template
from twin.evidence.traces.accounted import Accounted
from twin.evidence.traces.kernels import COLLECTIVE, EXCHANGE, HOST_COPY
from twin.hardware.host_costs import Part as OpPart
from twin.planning.types import Plan

PRODUCTS: Final = "products"
ATTENTION: Final = "attention"
OTHERS: Final = "other kernels"
EXCHANGES: Final = "exchanges"
"""Their kernels hold the wait for other ranks, too."""
PARTS: Final[tuple[OpPart, ...]] = ("forward", "backward", "weight")
_WHERE: Final = {"product": PRODUCTS, "grouped_product": PRODUCTS, "attention": ATTENTION}
_OF_CLASS: Final = {"gemm": PRODUCTS, "grouped_gemm": PRODUCTS, "attention": ATTENTION}
_BUSY: Final = {
    PRODUCTS: "`gemm`, `grouped_gemm`, `matmuls`",
    ATTENTION: "`attention_forward`, `attention_backward`",
    OTHERS: "`bandwidth`, `streaming`, `launch`",
    EXCHANGES: "`expert_sm_rate`, `expert_wait`",
}
"""Numbers of a profile that decide how long each takes."""


@dataclass(frozen=True, slots=True)
class Part:
    """Kernels of one sort, seconds in all layers; None where the plan has none to compare."""

    name: str
    measured: float
    predicted: float
    numbers: str
    """Of the profile, that decide the prediction."""


@dataclass(frozen=True, slots=True)
class PredictedLayers:
    """Layers of a trace, predicted."""

    kind: str
    layers: int
    paired: bool
    """Whether forwards run beside backwards."""
    measured_seconds: float
    predicted_seconds: float
    parts: tuple[Part, ...]

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_seconds / self.measured_seconds - 1

    @property
    def worst(self) -> Part:
        """What misses most, of what does not wait for other ranks inside its kernels."""
        own = [one for one in self.parts if one.name != EXCHANGES]
        return max(own, key=lambda one: abs(one.predicted - one.measured))


def predicted_layers(found: Accounted, plan: Plan) -> PredictedLayers | None:
    """What the plan says of the layers of a step; None where it shows none, or not as many forward
    as backward."""
    forward, backward = found.passes
    if not forward or forward != backward:
        return None
    layer = _commonest(plan)
    costs = CostModel.of(plan)
    layers = (layer,) * forward
    ahead, behind = forward_pass(layers, costs), backward_pass(layers, costs)
    pairs = plan.scenario.parallel.schedule.pairs
    if pairs:
        profile = costs.calibration
        loss = OverlapLoss(round(1e9 * profile.expert_wait), profile.expert_contention)
        both = paired(ahead, behind, costs.alone, costs.host.sync_ns, loss).steps
        step = length_ns(both, costs.alone)
    else:
        step = length_ns(ahead, costs.alone) + length_ns(behind, costs.alone)
    measured = _measured(found)
    predicted = {name: forward * time for name, time in _kernels(layer, costs).items()}
    predicted[EXCHANGES] = _busy((*ahead, *behind), costs) / 1e9
    parts = (
        Part(name, measured.get(name, 0.0), predicted.get(name, 0.0), _BUSY[name])
        for name in _BUSY
        if measured.get(name) or predicted.get(name)
    )
    return PredictedLayers(
        layer.kind, forward, pairs, found.step_ns / 1e9, step / 1e9, tuple(parts)
    )


def _commonest(plan: Plan) -> Layer:
    """The layer of which there are most."""
    blocks = [one for chunk in plan.chunks for one in chunk.layers if one.kind in BLOCKS]
    counts = Counter(map(id, blocks))
    return max(blocks, key=lambda one: counts[id(one)])


def _measured(found: Accounted) -> dict[str, float]:
    """Seconds of kernels by sort; collectives and copies to the host are none of a layer's."""
    times = defaultdict[str, float](float)
    for one in found.kernels:
        if one.kind not in (COLLECTIVE, HOST_COPY, "optimizer"):
            name = EXCHANGES if one.kind == EXCHANGE else _WHERE.get(one.kind, OTHERS)
            times[name] += one.busy_ns / 1e9
    return times


def _kernels(layer: Layer, costs: CostModel) -> dict[str, float]:
    """Seconds of one layer's kernels, forward and backward with what is computed again, by sort."""
    times = defaultdict[str, float](float)
    for op in layer.items:
        if isinstance(op, Op):
            sort = _OF_CLASS.get(op.kind, OTHERS)
            times[sort] += sum(costs.kernels(op, part).seconds for part in PARTS)
    times[OTHERS] += recomputed(layer, costs)
    return times


def _busy(steps: Template, costs: CostModel) -> float:
    """Nanoseconds that exchanges take, each with its links to itself."""
    return sum(step.alone_ns(costs.alone) for step in steps if step.stream == EXPERT)
