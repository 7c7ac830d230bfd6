"""Python's garbage collector on the hosts of a run: what a step waits for its pauses.

A full collection stops a host thread while it walks every tracked object. Collections that all
ranks do together every k steps cost pause / k. Automatic ones come at other steps on every rank,
and all ranks wait for each: pause x (1 - (1 - p)^n) for n hosts that collect in a share p of their
steps (Lin et al. 2025, arXiv:2505.05713, on what that costs). CPython up to 3.12 (gcmodule.c) looks
at its youngest objects when 700 more are alive than at the last look. Each 12th look takes in the
middle generation. Each 12th of these takes in all objects, if as many as a quarter of the old
objects have become old since. In training, objects that live on are those that forward passes keep
for their backward.

Hosts of tensor and context ranks run the same program on the same data, and collect together.
Others do independently; of a host that is ahead of its device only what exceeds its lead is seen.
OURS: collections of one step overlap, since hosts run the same program; each host at its own steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from twin.arch.ops import Layer
from twin.arch.recompute import wholly
from twin.engine.cost_model import CostModel
from twin.engine.host import without_host
from twin.engine.overlap import length_ns
from twin.engine.program import Template
from twin.hardware.host_costs import HostCosts
from twin.planning.types import Chunk, Plan
from twin.schedules.base import Pass
from twin.spec.software import CollectorSpec

YOUNG: Final = 700
"""More objects than at the last look at which the youngest are looked at."""
EVERY: Final = 12
"""Looks at one generation for each look at the next: behind more than 10 of them."""
GROWN: Final = 0.25
"""New old objects over all old ones that a full collection waits for."""

Passes = Mapping[tuple[Pass, int], Template]


def collection_ns(plan: Plan, costs: CostModel, passes: Passes) -> float:
    """What a mean step waits for garbage collections."""
    host, collector = costs.host, costs.host.collector
    pause = host.cpu * collector.objects * collector.object * 1e9 if collector else 0.0
    if collector is None or not pause:
        return 0.0
    interval = plan.scenario.gc_interval
    if interval is not None:
        return pause / interval if interval else 0.0
    chances = [_chance(plan, host, collector, chunk) for chunk in plan.chunks]
    each = sum(chances) / len(chances) * forwards(plan)
    return waits(each, plan.mesh.data * plan.mesh.pipeline) * _exposed(plan, costs, passes, pause)


def forwards(plan: Plan) -> int:
    """Forward passes of a rank in a step."""
    return plan.microbatches * plan.scenario.parallel.virtual


def full_collections(kept: float, alive: float, objects: float) -> float:
    """Full collections per forward pass that keeps so many objects. `alive` of all passes wait for
    their backward when the middle generation is looked at, and become old; `objects` are old."""
    looks = kept / (YOUNG * EVERY)
    ageing = min(alive, YOUNG * EVERY)
    return looks * min(1 / EVERY, ageing / (GROWN * objects))


def waits(each: float, hosts: int) -> float:
    """Pauses that a mean step waits for, of hosts that collect so often in a step: at most one,
    unless each collects more than once."""
    return max(1.0, each) * (1.0 - (1.0 - min(1.0, each)) ** hosts)


def kept_objects(layers: Sequence[Layer], host: HostCosts) -> float:
    """Python's objects that a forward pass of layers keeps for the backward."""
    again = 1.0 if host.collector is None else host.collector.checkpointed
    return sum(
        (again if wholly(layer, layer.policy.recompute) else 1.0) * sum(map(host.kept, layer.items))
        for layer in layers
    )


def _chance(plan: Plan, host: HostCosts, collector: CollectorSpec, chunk: Chunk) -> float:
    kept = kept_objects(chunk.layers, host)
    # Of the last forward half has come, on the mean, when the middle generation is looked at.
    waiting = max(1, plan.memory.stages[chunk.stage].in_flight) - 0.5
    return full_collections(kept, waiting * kept, collector.objects)


def _exposed(plan: Plan, costs: CostModel, passes: Passes, pause: float) -> float:
    """What is seen of a pause (ns), on the mean over a step's forward passes. A host that is faster
    than its device, and asks it nothing, issues a forward while the device runs the backward
    before: that is its lead, and half of what it gains in the forward. The first forward of a step
    has no backward before it."""
    chunk = max(plan.chunks, key=lambda one: len(one.layers))
    both = passes["F", chunk.index], passes["B", chunk.index]
    forward, backward = (length_ns(without_host(one), costs.alone) for one in both)
    issued = [sum(step.host_ns for step in one) for one in both]
    asks = any(step.asks for one in both for step in one)
    asks |= costs.host.waits_for("messages") and plan.mesh.pipeline > 1
    if asks or not costs.host.ahead or sum(issued) >= forward + backward:
        return pause
    first = pause - max(0.0, forward - issued[0]) / 2
    times = forwards(plan)
    return (max(0.0, first) + (times - 1) * max(0.0, first - backward)) / times
