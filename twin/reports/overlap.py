"""Can the experts' all-to-all hide? The window that a layer's kernels open, and what its
all-to-all asks of each link.

Per kind of layer and micro-batch, each alone: kernels at full speed, transfers with their links to
themselves, so that nothing here depends on the play. An all-to-all hides where its demand is
smaller than the window; how much of it then does is played (`exposure`). Counted are the passes
that the schedule runs together: in a pair the forward of one micro-batch runs beside the backward
of another, and each hides the other's all-to-all; without pairs only what the pass itself puts
beside it does. It breaks where all-to-all shares its links with other traffic, or takes SMs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Final

from twin.arch.ops import Layer
from twin.engine.cost_model import CostModel
from twin.engine.overlap import length_ns
from twin.engine.passes import backward_pass, forward_pass, input_pass, recomputed, weight_pass
from twin.engine.program import COMPUTE, EXPERT, Step, Template
from twin.planning.types import Plan
from twin.reports.breakdown import CAUSE_WORDS
from twin.reports.table import Table, digits, duration, headed, percent

if TYPE_CHECKING:
    from twin.reports.report import Report

KINDS: Final = ("dense", "moe", "mixer")
"""Kinds of layers that are looked at, in this order."""
LINKS: Final = ("nvlink", "nic")
"""Classes of link that an all-to-all takes."""
LINK_WORDS: Final = {"nvlink": "NVLink", "nic": "RDMA"}
"""What runs over them."""
KIND_WORDS: Final = {"dense": "dense", "moe": "MoE", "mixer": "mixer only"}
"""Kinds of layers as people write them."""


@dataclass(frozen=True, slots=True)
class Window:
    """Seconds of a layer's kernels per micro-batch."""

    forward: float
    recompute: float
    """Run again in the backward pass."""
    backward_input: float
    """With what the memory policy repeats of single operations."""
    backward_weight: float
    hiding: float
    """Of these: what can run while the all-to-all is under way."""

    @property
    def total(self) -> float:
        """All kernels of the layer."""
        return self.forward + self.recompute + self.backward_input + self.backward_weight


@dataclass(frozen=True, slots=True)
class Demand:
    """Seconds of a layer's dispatches and combines in one pass of a micro-batch."""

    links: Mapping[str, float]
    """Their bytes through one port of each class of link, in one direction."""
    alone: float
    """One after another, with latency and with links to themselves: what has to be hidden."""

    def __add__(self, other: Demand) -> Demand:
        links = {link: self.links[link] + other.links[link] for link in self.links}
        return Demand(links, self.alone + other.alone)

    def to_json(self) -> dict[str, Any]:
        """In seconds, with the unit in the names."""
        links = {f"{link}_seconds": seconds for link, seconds in self.links.items()}
        return {**links, "alone_seconds": self.alone}


@dataclass(frozen=True, slots=True)
class LayerOverlap:
    """Window and demand of one kind of layer."""

    kind: str
    layers: int
    """Layers of the kind in the model."""
    window: Window
    forward: Demand
    backward: Demand
    """With the all-to-all of what is recomputed."""

    @property
    def demand(self) -> Demand:
        """Of both passes."""
        return self.forward + self.backward

    @property
    def ratio(self) -> float | None:
        """Demand over the window that can hide it: above 1 a part must show. None: no window."""
        return self.demand.alone / self.window.hiding if self.window.hiding else None

    def to_json(self) -> dict[str, Any]:
        """In seconds, with the unit in the names."""
        window = self.window
        return {
            "kind": self.kind,
            "layers": self.layers,
            "window": {
                "forward_seconds": window.forward,
                "recompute_seconds": window.recompute,
                "backward_input_seconds": window.backward_input,
                "backward_weight_seconds": window.backward_weight,
                "hiding_seconds": window.hiding,
            },
            "demand": {"forward": self.forward.to_json(), "backward": self.backward.to_json()},
            "ratio": self.ratio if self.demand.alone else 0.0,
        }


def overlap(plan: Plan) -> tuple[LayerOverlap, ...]:
    """Window and demand of each kind of layer that the model has, on one rank."""
    # Layers of one kind are one shared object.
    layers = [layer for chunk in plan.chunks for layer in chunk.layers]
    found: list[LayerOverlap] = []
    for kind in KINDS:
        own = [layer for layer in layers if layer.kind == kind]
        if own:
            found.append(_layer(plan, own[0], len(own) // plan.mesh.copies))
    return tuple(found)


def _layer(plan: Plan, layer: Layer, count: int) -> LayerOverlap:
    costs = CostModel.of(plan)
    forward = forward_pass((layer,), costs)
    back = input_pass((layer,), costs)
    weight = weight_pass((layer,), costs)
    repeated = recomputed(layer, costs)
    window = Window(
        forward=_kernels(forward),
        recompute=repeated,
        backward_input=_kernels(back) - repeated,
        backward_weight=_kernels(weight),
        hiding=0.0,
    )
    beside = _paired_with(plan)
    if beside is None:
        whole = backward_pass((layer,), costs)
        hiding = sum(_hidden_within(one, costs.alone) for one in (forward, whole))
    else:
        hiding = window.total - (window.backward_weight if beside == "I" else 0.0)
    return LayerOverlap(
        kind=layer.kind,
        layers=count,
        window=Window(*_parts(window), hiding),
        forward=_demand(forward, costs.alone),
        backward=_demand(back, costs.alone),
    )


def _parts(window: Window) -> tuple[float, float, float, float]:
    return window.forward, window.recompute, window.backward_input, window.backward_weight


def _paired_with(plan: Plan) -> str | None:
    """The backward that runs together with a forward of another micro-batch: `B`, or `I` where
    weight gradients come after the pair; None where nothing is paired."""
    schedule = plan.scenario.parallel.schedule
    if not schedule.pairs:
        return None
    virtual = plan.scenario.parallel.virtual
    # The first stage of the shortest step that has all kinds of actions.
    least = schedule.warmup_microbatches(plan.mesh.pipeline, virtual, plan.microbatches)
    few = min(plan.microbatches, 2 * least)
    order = schedule.order(plan.mesh.pipeline, virtual, few)[0]
    return next((after.kind for action, after in pairwise(order) if action.paired), None)


def _hidden_within(template: Template, capacity: Mapping[str, float]) -> float:
    """Seconds of kernels that one pass puts beside its own all-to-all."""
    busy = sum(step.duration_ns for step in template if step.stream == COMPUTE)
    sent = sum(step.alone_ns(capacity) for step in template if step.stream == EXPERT)
    return max(0.0, busy + sent - length_ns(template, capacity)) / 1e9


def _kernels(template: Template, name: str = "") -> float:
    """Seconds of the kernels of a pass, or of those under one name."""
    own = (step for step in template if step.stream == COMPUTE and name in {"", step.name})
    return sum(step.duration_ns for step in own) / 1e9


def _demand(template: Template, capacity: Mapping[str, float]) -> Demand:
    """What the all-to-alls of a pass ask of the links."""
    return Demand(
        links={link: _carried(template, link, capacity) / 1e9 for link in LINKS},
        alone=sum(step.alone_ns(capacity) for step in exchanges(template)) / 1e9,
    )


def exchanges(template: Template) -> Iterable[Step]:
    """The steps of a pass that exchange tokens between experts. Kernels could hide them; what the
    host waits for they cannot."""
    sent = (step for step in template if step.stream == EXPERT and not step.asks)
    return (step for step in sent if step.traffic is not None)


def _carried(template: Template, link: str, capacity: Mapping[str, float]) -> float:
    """Nanoseconds that the bytes of a pass's all-to-alls take through one port."""
    sizes = (getattr(step.traffic, f"{link}_bytes") for step in exchanges(template))
    return sum(sizes) / capacity[link]


def sentence(found: Sequence[LayerOverlap]) -> str:
    """Whether the all-to-all of the layers with experts can hide, in words."""
    asking = [one for one in found if one.demand.alone]
    if not asking:
        return "No layer has an all-to-all: there is nothing to hide."
    one = max(asking, key=lambda layer: layer.ratio or inf)
    kind = KIND_WORDS[one.kind]
    demand = f"the all-to-all of a {kind} layer takes {duration(one.demand.alone)} alone"
    link = max(LINKS, key=lambda name: one.demand.links[name])
    bound = f"most of it {LINK_WORDS[link]}"
    if one.ratio is None:
        return f"{demand[:1].upper()}{demand[1:]}, {bound}, and no kernels run beside it."
    can = "fits under" if one.ratio <= 1 else "is longer than"
    return (
        f"{demand[:1].upper()}{demand[1:]}, {bound}, and {can} the {duration(one.window.hiding)} "
        f"of kernels that can hide it ({digits(100 * one.ratio)} %)."
    )


def overlap_table(found: Sequence[LayerOverlap]) -> Table:
    """Window and demand of each kind of layer."""
    title = "One layer and micro-batch, each part alone"
    table = headed(title, "", *(f"{KIND_WORDS[layer.kind]} ({layer.layers})" for layer in found))
    for label, key in (
        ("forward", "forward"),
        ("recomputation", "recompute"),
        ("backward (input)", "backward_input"),
        ("weight gradients", "backward_weight"),
    ):
        table.add_row(label, *(duration(getattr(layer.window, key)) for layer in found))
    window = [duration(layer.window.hiding) for layer in found]
    table.add_row("window: can hide an all-to-all", *window)
    table.add_section()
    for link, words in LINK_WORDS.items():
        for label, part in (("forward", "forward"), ("backward", "backward")):
            cells = [_time(getattr(layer, part).links[link]) for layer in found]
            table.add_row(f"{words}, {label}", *cells)
    table.add_row("demand: all-to-all alone", *(_time(layer.demand.alone) for layer in found))
    table.add_section()
    table.add_row("demand / window", *(_ratio(layer) for layer in found))
    return table


def _time(seconds: float) -> str:
    return duration(seconds) if seconds else ""


def _ratio(layer: LayerOverlap) -> str:
    if not layer.demand.alone:
        return "nothing to hide"
    return "no window" if layer.ratio is None else f"{layer.ratio:.2f}"


def exposure_table(report: Report) -> list[Table]:
    """What is exposed, in the ramp and in the steady state; nothing where that is not known."""
    rows = [
        (cause, exposed) for cause, exposed in report.exposure.items() if report.breakdown_ns[cause]
    ]
    if not rows:
        return []
    table = headed("Exposed, mean over ranks", "", "ramp", "", "steady state", "")
    for cause, exposed in rows:
        cells = [
            cell
            for ns in (exposed.ramp_ns, exposed.steady_ns)
            for cell in (duration(ns / 1e9), percent(ns / report.step_ns))
        ]
        table.add_row(CAUSE_WORDS[cause], *cells)
    table.caption = "ramp: before a rank's first backward and after its last forward"
    return [table]
