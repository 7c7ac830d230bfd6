"""Device and host memory over the step: the ledger's walk put on the clock of the simulated passes.

The ledger says what every pass finds, needs and leaves, where; the trace says when it ran. From its
first kernel to its last a pass counts at its fullest instant, so the series is exact between passes
and an upper bound inside them, and its highest point is the ledger's peak. It errs on the safe side
for long passes: their layers fill and empty one by one, which is not drawn. Activations that are
copied to or from the host count on both sides while the passes run under which that happens; copies
that take longer hold up the next pass, not the series. The buckets of an optimizer step are set
aside for the whole step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import COMPUTE
from twin.engine.trace import Trace
from twin.planning.footprint import Held, footprints, kept_by_op, sent_by_op
from twin.planning.memory import moment
from twin.planning.offload import trips
from twin.planning.types import Plan
from twin.planning.walk import Walk, enough_microbatches, walk
from twin.schedules.base import Action

_KINDS: Final = {"F": 0, "B": 1, "I": 1, "W": 2}
"""Passes that one micro-batch has at most one of, per chunk."""
_SEGMENTS: Final = {"forward": 0, "backward_weight": 2}
"""The kind of pass that a segment is part of, by name; every other one is part of a backward."""
WEIGHT_GRADIENTS: Final = "weight_gradients"
"""Stands for what waits for the second half of a split backward, beside the names of ops."""
_FIELDS: Final = tuple(Held().categories())
"""Categories that come and go with the passes."""

Bytes: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MemorySeries:
    """Bytes on one rank over the played part of the step: constant from each of `times` (ns) to the
    next, the last to `end_ns`."""

    role: str
    stage: int
    times: NDArray[np.int64]
    end_ns: int
    categories: Mapping[str, NDArray[np.float64]]
    """Bytes by category of the ledger, one number per time."""
    peak_bytes: float
    peak_ns: int
    """When the fullest pass begins."""
    peak_moment: str
    host: Mapping[str, NDArray[np.float64]] = field(default_factory=dict[str, NDArray[np.float64]])
    """Bytes in host memory by category, one number per time; empty without offload."""

    @property
    def total(self) -> NDArray[np.float64]:
        """Bytes on the device over all categories, one number per time."""
        return np.sum(list(self.categories.values()), axis=0)

    @property
    def host_total(self) -> NDArray[np.float64]:
        """Bytes on the host over all categories, one number per time."""
        return np.sum([np.zeros(len(self.times)), *self.host.values()], axis=0)


def memory_series(plan: Plan, trace: Trace, role: int) -> MemorySeries:
    """The memory of one role of a trace, over the played part of the step (the axis of its spans).

    Raises:
        ValueError: the trace is not of this plan: it has passes that the plan's schedule lacks.
    """
    stage = role * plan.mesh.pipeline // len(trace.roles)
    actions = _order(plan, stage, trace.played_microbatches)
    begins, ends = _pass_times(trace, role, actions)
    walked = _walked(plan, actions)
    during = np.column_stack((walked.during, walked.host))
    left = np.column_stack((walked.left, walked.host_left))
    times, held, of = _steps(actions, (begins, ends), (during, left))
    standing = _standing(plan, stage)
    device = {name: np.full(len(times), size) for name, size in standing.items()} | dict(
        zip(_FIELDS, held.T, strict=False)
    )
    total = np.sum(list(device.values()), axis=0)
    peak = int(np.argmax(total > total.max() - 0.5))
    return MemorySeries(
        role=trace.roles[role],
        stage=stage,
        times=times,
        end_ns=max(int(trace.spans.end.max(initial=0)), int(times[-1])),
        categories=device,
        peak_bytes=float(total[peak]),
        peak_ns=int(times[peak]),
        peak_moment=moment(actions[int(of[peak])]),
        host=_on_host(plan, stage, held[:, -1]),
    )


def _on_host(plan: Plan, stage: int, activations: Bytes) -> dict[str, Bytes]:
    """What a rank of the stage keeps on the host, of which activations come and go."""
    ledger = plan.memory.stages[stage].host
    return {
        name: activations if name == "activations" else np.full(len(activations), size)
        for name, size in ledger.items()
    }


def thinned(series: MemorySeries, points: int) -> MemorySeries:
    """The series with at most so many points: each equal slice of time is drawn at its fullest
    instant, device and host each at its own, so that no peak is lost; what lies between is drawn
    too high."""
    if len(series.times) <= points:
        return series
    edges = np.linspace(0, series.end_ns, points + 1).astype(np.int64)[:-1]
    first = np.unique(np.searchsorted(series.times, edges))
    first = first[first < len(series.times)]
    last = np.append(first[1:], len(series.times))
    slices = list(zip(first, last, strict=True))
    device, host = (
        [at + int(total[at:until].argmax()) for at, until in slices]
        for total in (series.total, series.host_total)
    )
    return replace(
        series,
        times=series.times[first],
        categories={name: sizes[device] for name, sizes in series.categories.items()},
        host={name: sizes[host] for name, sizes in series.host.items()},
    )


def activations_by_op(plan: Plan, stage: int) -> dict[str, float]:
    """What the `activations` of a stage's peak consist of: bytes by the op that keeps them, largest
    first, `WEIGHT_GRADIENTS` for what waits for the second half of a split backward. They sum to
    the category: what is on the host is not among them. The pass that runs at the peak has part of
    its chunk only; what it lacks is taken from all ops alike."""
    parallel = plan.scenario.parallel
    walked = enough_microbatches(
        parallel.schedule, plan.mesh.pipeline, parallel.virtual, plan.microbatches
    )
    actions = _order(plan, stage, walked)
    needs = footprints(plan.chunks)
    through = _walked(plan, actions)
    peak = through.fullest
    alive, late = _waiting(actions[: peak + 1])
    gone = Counter(
        chunk for (chunk, _), trip in trips(actions).items() if trip.gone <= peak < trip.back
    )
    waits = sum(needs[c].late.activations * n for c, n in late.items())
    running = needs[actions[peak].chunk]
    if actions[peak].kind == "I":  # it fills with what waits as far as it is fuller than it began
        waits += max(0.0, running.input_backward.activations - running.kept.activations)
    by_op = {WEIGHT_GRADIENTS: waits}
    for chunk in plan.chunks:
        for layer in chunk.layers:
            kept = {} if layer.kind == "head" else kept_by_op(layer, layer.policy)
            sent = sent_by_op(layer, layer.policy)
            for name, size in kept.items():
                here = size * alive[chunk.index] - sent.get(name, 0.0) * gone[chunk.index]
                by_op[name] = by_op.get(name, 0.0) + here
    return _adding_up(by_op, float(through.during[peak, 0]))


def _walked(plan: Plan, actions: Sequence[Action]) -> Walk:
    """A stage's actions, walked under the plan's memory policy."""
    return walk(actions, footprints(plan.chunks))


def _order(plan: Plan, stage: int, microbatches: int) -> tuple[Action, ...]:
    parallel = plan.scenario.parallel
    return parallel.schedule.stage_order(stage, plan.mesh.pipeline, parallel.virtual, microbatches)


def _standing(plan: Plan, stage: int) -> dict[str, float]:
    """Categories that are there for the whole step."""
    ledger = plan.memory.stages[stage].categories
    return {name: size for name, size in ledger.items() if name not in _FIELDS}


def _pass_times(
    trace: Trace, role: int, actions: Sequence[Action]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When each action's kernels begin and end (ns); one without kernels ends where it begins, at
    the end of the one before."""
    spans = trace.spans
    rows = np.flatnonzero((spans.role == role) & (spans.stream == COMPUTE) & (spans.chunk >= 0))
    kind = np.array([_SEGMENTS.get(name, 1) for name in trace.names])[spans.name[rows]]
    keys = zip(
        kind.tolist(), spans.chunk[rows].tolist(), spans.microbatch[rows].tolist(), strict=True
    )
    place = {(_KINDS[one.kind], one.chunk, one.microbatch): at for at, one in enumerate(actions)}
    of = [place.get(key, -1) for key in keys]
    if -1 in of:
        raise ValueError(f"{trace.roles[role]} ran passes that are not of this plan")
    begins = np.full(len(actions), np.iinfo(np.int64).max)
    ends = np.zeros(len(actions), np.int64)
    np.minimum.at(begins, of, spans.start[rows])
    np.maximum.at(ends, of, spans.end[rows])
    ends = np.maximum.accumulate(ends)
    return np.minimum(begins, ends), ends


def _steps(
    actions: Sequence[Action],
    clock: tuple[NDArray[np.int64], NDArray[np.int64]],
    bytes: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.intp]]:
    """Times at which the bytes change, the bytes from there on, and the action behind each. A pair
    begins with its first and ends with its last kernel."""
    (begins, ends), (during, left) = clock, bytes
    pairs = np.array([one.paired for one in actions], np.bool_)
    second = np.flatnonzero(pairs) + 1
    begins = begins.copy()
    begins[second] = np.minimum(begins[second], begins[second - 1])
    shown = np.flatnonzero(~pairs)
    times = np.stack([begins[shown], ends[shown]], axis=1).ravel()
    held = np.stack([during[shown], left[shown]], axis=1).reshape(-1, during.shape[1])
    of = np.repeat(shown, 2)
    # Of changes at one time the last holds; a pass without length still counts by what it leaves.
    holds = np.append(times[1:] > times[:-1], True)
    times, held, of = times[holds], held[holds], of[holds]
    if times[0] > 0:
        times, of = np.insert(times, 0, 0), np.insert(of, 0, 0)
        held = np.vstack([np.zeros(held.shape[1]), held])
    return times, held, of


def _waiting(actions: Sequence[Action]) -> tuple[Counter[int], Counter[int]]:
    """Micro-batches per chunk that wait for their backward, and for the second half of it, while
    the last of the actions runs: it still has what it found."""
    alive: Counter[int] = Counter()
    late: Counter[int] = Counter()
    for at, one in enumerate(actions):
        running = at == len(actions) - 1
        alive[one.chunk] += (one.kind == "F") - (one.kind in ("B", "I") and not running)
        late[one.chunk] += (one.kind == "I" and not running) - (one.kind == "W" and not running)
    return +alive, +late


def _adding_up(parts: Mapping[str, float], total: float) -> dict[str, float]:
    """The parts, largest first, scaled so that they sum to the total; those that are something."""
    given, ranked = sum(parts.values()), sorted(parts.items(), key=lambda part: -part[1])
    return {name: size * total / given for name, size in ranked if size > 0}
