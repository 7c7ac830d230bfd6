"""Who uses the network: each class of link, each collective, and where groups of ranks sit on it.

Bytes come from the plan's program, times from the trace. A link is in use while some transfer over
it is under way, its latency included; its rate is what it carries in that time. A transfer over
several links at once is taken to be done with each as early as it would be alone, in proportion.
Everything that a NIC moves crosses the GPU's PCIe link too, and so do copies to and from host
memory. A collective's exposed share is the part of its time in which its own rank runs no kernel;
the report's breakdown says which waiting that caused, and counts a message between stages for the
stage that receives it. Rates follow nccl-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md):
algbw = payload / time, and busbw = algbw x (n - 1) / n, for all-reduce twice that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twin.arch.ops import CollectiveKind, Exchange
from twin.collectives.traffic import Traffic
from twin.engine.program import (
    COMPUTE,
    SEND_BACKWARD,
    SEND_FORWARD,
    STREAMS,
    Program,
    Step,
)
from twin.engine.trace import Trace
from twin.loading.files import table
from twin.planning.memory import boundary_bytes
from twin.planning.mesh import in_pods, neighbours_share
from twin.planning.types import Plan
from twin.reports.network_map import LinkLoad, link_use, steps_by_name
from twin.reports.table import Table, bar, digits, duration, gibibytes, headed, percent, rate

AXES: Final = table(__name__, "AXES")
"""Axis of parallelism that a stream serves, where it is not the stream's own name."""
_SHORT: Final = 0.01
"""Share of the step that is not worth a word."""
_KINDS: Final[Mapping[str, CollectiveKind]] = table(__name__, "_KINDS")
"""What the collectives outside the layers do, by how their name begins."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective, or message, of the step. All numbers are per rank, means over ranks and
    calls; None: not known."""

    name: str
    axis: str
    """Axis of parallelism that it serves."""
    group: str
    members: int | None
    """Ranks of the group."""
    calls: float
    """Times per step."""
    payload: float | None
    """Bytes of one call, as nccl-tests counts them."""
    nvlink_bytes: float
    nic_bytes: float
    """Bytes of one call through each of the rank's ports, in one direction."""
    uplink_bytes: float
    """Of `nic_bytes`: those that leave the pod, mean of the members."""
    alone_seconds: float
    """One call with its links to itself."""
    seconds: float
    """One call as it ran."""
    exposed: float
    """Share of its time in which its rank runs no kernel, 0 to 1."""
    algbw: float | None
    busbw: float | None
    """Bytes per second as it ran."""

    @property
    def total_seconds(self) -> float:
        """All calls of a step."""
        return self.calls * self.seconds


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """Links and collectives of one step."""

    links: tuple[LinkLoad, ...]
    collectives: tuple[Collective, ...]
    """Longest in total first."""
    step_seconds: float

    def link(self, key: str) -> LinkLoad | None:
        """The class of link of this name."""
        return next((one for one in self.links if one.key == key), None)


def network_use(plan: Plan, program: Program, trace: Trace) -> NetworkUse:
    """What the step of a plan, as it was simulated, does to the network."""
    found = _collectives(plan, program, trace)
    uplinks = sum(one.calls * one.uplink_bytes for one in found)
    return NetworkUse(link_use(plan, program, trace, uplinks), found, trace.step_ns / 1e9)


def sentence(use: NetworkUse) -> str:
    """Where the network's bottleneck is, in words."""
    link = max(use.links, key=lambda one: one.use)
    if not link.bytes:
        return "Nothing is communicated."
    words = (
        f"The busiest class of link is the {link.spoken}: in use {digits(100 * link.busy)} % of "
        f"the step, at {rate(link.rate)} of {rate(link.capacity)}"
    )
    exposed = sorted(use.collectives, key=lambda one: -one.total_seconds * one.exposed)
    if not exposed or exposed[0].total_seconds * exposed[0].exposed < _SHORT * use.step_seconds:
        return f"{words}; nearly all that it carries hides beside kernels, so it holds nothing up."
    first = exposed[0]
    shown = duration(first.total_seconds * first.exposed)
    name = first.name.replace("_", " ")
    return f"{words}; what shows most is {name}, {shown} per step with no kernel beside it."


def _collectives(plan: Plan, program: Program, trace: Trace) -> tuple[Collective, ...]:
    exposed, steps = _exposed(trace), steps_by_name(program)
    found = [
        _message(plan, program, played)
        if played.stream in (SEND_FORWARD, SEND_BACKWARD)
        else _collective(plan, program, played, steps.get((played.stream, played.name), ()))
        for played in _played(trace, exposed)
        # What moves nothing only keeps an order.
        if played.stream in (SEND_FORWARD, SEND_BACKWARD) or (played.stream, played.name) in steps
    ]
    return tuple(sorted(found, key=lambda one: -one.total_seconds))


@dataclass(frozen=True, slots=True)
class _Played:
    """What communicated under one name: its stream, times per step, seconds, exposed share."""

    stream: int
    name: str
    calls: float
    seconds: float
    exposed: float

    @property
    def axis(self) -> str:
        return AXES.get(STREAMS[self.stream], STREAMS[self.stream])


def _played(trace: Trace, exposed: NDArray[np.float64]) -> list[_Played]:
    """Everything that communicated; what belongs to micro-batches is counted for all of them."""
    spans = trace.spans
    scale = trace.microbatches / trace.played_microbatches
    found: list[_Played] = []
    pairs = np.unique(np.stack([spans.stream, spans.name])[:, spans.stream != COMPUTE], axis=1)
    for stream, name in pairs.T:
        rows = np.flatnonzero((spans.stream == stream) & (spans.name == name))
        lengths = spans.end[rows] - spans.start[rows]
        repeated = int((spans.microbatch[rows] >= 0).sum())
        calls = (repeated * scale + len(rows) - repeated) / len(trace.roles)
        share = float(exposed[rows].sum() / lengths.sum())
        seconds = float(lengths.mean()) / 1e9
        found.append(_Played(int(stream), trace.names[int(name)], calls, seconds, share))
    return found


def _message(plan: Plan, program: Program, played: _Played) -> Collective:
    """A message from a stage to a neighbour. The program's bytes and rate are those of the link
    that all messages take."""
    message = program.message
    path = "far" if message.far and message.link == "nic" else message.link
    rate = program.capacity[path] * 1e9
    size = boundary_bytes(plan.scenario)
    by_nic = size if message.link == "nic" else 0.0
    return Collective(
        name=played.name,
        axis=played.axis,
        group="neighbouring stages",
        members=2,
        calls=played.calls,
        payload=size,
        nvlink_bytes=size - by_nic,
        nic_bytes=by_nic,
        uplink_bytes=by_nic * _leaving(plan) if message.far else 0.0,
        alone_seconds=message.latency_ns / 1e9 + message.bytes / rate,
        seconds=played.seconds,
        exposed=played.exposed,
        algbw=size / played.seconds,
        busbw=size / played.seconds,
    )


def _leaving(plan: Plan) -> float:
    """Share of the boundaries between stages that leave a pod."""
    pods = in_pods(plan.mesh, plan.scenario.cluster.fabric.nodes_per_leaf)
    shared = neighbours_share(pods)
    return 1 - sum(shared) / len(shared)


def _collective(plan: Plan, program: Program, played: _Played, steps: Sequence[Step]) -> Collective:
    groups = sorted({step.group for step in steps})
    placement = plan.placements.get(groups[0]) if len(groups) == 1 else None
    kind = _kind(plan, played.name)
    flows = [step.traffic or Traffic() for step in steps]
    sizes = [_payload(plan, step, kind, flow) for step, flow in zip(steps, flows, strict=True)]
    payloads = [payload for payload, _ in sizes]
    known = bool(sizes) and all(payloads)
    return Collective(
        name=played.name,
        axis=played.axis,
        group=" and ".join(_group(plan, group) for group in groups) or "unknown",
        members=placement.size if placement else None,
        calls=played.calls,
        payload=_mean(payloads) if known else None,
        nvlink_bytes=_mean(flow.nvlink_bytes for flow in flows),
        nic_bytes=_mean(flow.nic_bytes for flow in flows),
        uplink_bytes=_mean(flow.far_bytes for flow in flows),
        alone_seconds=_mean(step.alone_ns(program.capacity) / 1e9 for step in steps),
        seconds=played.seconds,
        exposed=played.exposed,
        algbw=_mean(payloads) / played.seconds if known else None,
        busbw=_mean(payload * factor for payload, factor in sizes) / played.seconds
        if known
        else None,
    )


def _group(plan: Plan, group: str) -> str:
    """A kind of group in words, with its size where it is placed."""
    placement = plan.placements.get(group)
    words = group.replace("_", " ")
    return f"{words} of {placement.size:,}" if placement else words


def _kind(plan: Plan, name: str) -> CollectiveKind | None:
    """What kind of collective it is: those of the layers say so, those outside by their name."""
    if item := _exchange(plan, name):
        return item.forward or item.backward
    for start, kind in _KINDS.items():
        if name.startswith(start):
            return kind
    return None


def _exchange(plan: Plan, name: str) -> Exchange | None:
    for chunk in plan.chunks:
        for layer in chunk.layers:
            for item in layer.items:
                if isinstance(item, Exchange) and item.name == name:
                    return item
    return None


def _payload(
    plan: Plan, step: Step, kind: CollectiveKind | None, flow: Traffic
) -> tuple[float, float]:
    """Bytes of one call, 0 where not known, and what makes its busbw of them. Those of the layers
    say so; outside, a ring sends (n - 1) / n of them per trip."""
    placement = plan.placements.get(step.group)
    if kind is None or placement is None or placement.size == 1:
        return 0.0, 0.0
    # What nccl-tests multiplies algbw with to get busbw.
    trips = 2 if kind == "all_reduce" else 1
    factor = trips * (placement.size - 1) / placement.size
    if item := _exchange(plan, step.name):
        return (item.payload() + item.payload(backward=True)) / 2, factor
    return (flow.nvlink_bytes + flow.nic_bytes) / factor, factor


def _exposed(trace: Trace) -> NDArray[np.float64]:
    """Nanoseconds of every span in which its role runs no kernel."""
    spans = trace.spans
    alone = (spans.end - spans.start).astype(np.float64)
    for role in range(len(trace.roles)):
        own = spans.role == role
        kernels = own & (spans.stream == COMPUTE)
        others = np.flatnonzero(own & (spans.stream != COMPUTE))
        if not kernels.any():
            continue
        begins, ends = spans.start[kernels], spans.end[kernels]
        done = np.cumsum(ends - begins)
        clock = np.stack([begins, ends], axis=1).ravel()
        busy = np.stack([done - (ends - begins), done], axis=1).ravel()
        beside = np.interp(spans.end[others], clock, busy)
        beside -= np.interp(spans.start[others], clock, busy)
        alone[others] -= beside
    return alone


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def link_use_table(use: NetworkUse) -> Table:
    """Every class of link: how long it is in use, what it carries, and how fast while it does."""
    heads = ("", "in use", "", "carries per step", "while in use", "of at most", "capacity used")
    table = headed("Links, mean of the ranks and of both directions", *heads)
    for link in use.links:
        table.add_row(*_link_row(link))
        for name, size in link.parts.items():
            table.add_row(f"  {name}", "", "", gibibytes(size), "", "", "")
    return table


def _link_row(link: LinkLoad) -> tuple[str, ...]:
    return (
        link.label,
        percent(link.busy),
        bar(link.busy, 10),
        gibibytes(link.bytes),
        rate(link.rate),
        rate(link.capacity),
        percent(link.use),
    )
