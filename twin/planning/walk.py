"""A stage's ordered actions, walked: what is alive, where, while each of them runs.

Independent of times: a forward leaves what its backward needs, a backward frees it, and what the
memory policy offloads waits on the host in between (`twin.planning.offload`), where it counts twice
while it is copied. A paired forward runs with the backward behind it, layer beside layer (Megatron-
LM, `TransformerModelChunkSchedulePlan.run`), so that one has the working sets of both, and while
one fills the other empties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twin.planning.columns import Columns, Numbers, columns
from twin.planning.footprint import Footprint, Held, spared
from twin.schedules.base import Action, Pass, Schedule

Bytes = NDArray[np.float64]

_RESOLUTION = 0.5
"""Bytes by which a moment has to be fuller than an earlier one to be named: below lies rounding."""
_FORWARDS: dict[Pass, int] = {"F": 1, "B": -1, "I": -1, "W": 0}
"""Forwards that wait for their backward, more after a pass than before."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment of a walk: the action, what passes hold on the device then, how many chunk
    forwards wait for their backward (wherever), and how many backwards for their weights' half."""

    action: Action
    held: Held
    in_flight: int
    late: int = 0
    at: int = field(default=0, repr=False, compare=False)
    """Its place among the actions."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A stage's actions with the bytes that passes hold, one row or number per action."""

    columns: Columns
    during: Bytes
    """While it runs, on the device: [actions, 3], activations, logits and working set."""
    left: Bytes
    """After it, the same."""
    host: Bytes
    """Activations on the host while it runs, on their way there and back included."""
    host_left: Bytes
    """After it."""
    kept: Bytes
    """Activations that wait for a backward after it, on the device or the host, each once."""

    @property
    def fullest(self) -> int:
        """The first action at which the device is fullest."""
        total = self.during.sum(axis=1)
        return int(np.argmax(total > total.max() - _RESOLUTION))

    def peak(self) -> Peak:
        """The first fullest moment."""
        at = self.fullest
        action, past = self.columns.action(at), self.columns.past(at)
        waiting = past["F"] - past["B"] - past["I"]
        return Peak(
            action,
            Held(*self.during[at].tolist()),
            waiting + (action.kind == "F"),
            past["I"] - past["W"],
            at,
        )


def walk(actions: Sequence[Action], needs: Mapping[int, Footprint]) -> Walk:
    """Walks a stage's ordered actions; `Footprint.sent` of what forwards keep goes to the host and
    back."""
    return walk_columns(columns(actions), needs)


def walk_columns(actions: Columns, needs: Mapping[int, Footprint]) -> Walk:
    """The same of actions in columns."""
    if not len(actions):
        raise ValueError("a stage without actions has no peak")
    of = actions.row
    finds = _table([needs[chunk].before(kind) for kind, chunk in actions.rows])
    leaves = _table([needs[chunk].after(kind) for kind, chunk in actions.rows])
    runs = _table([needs[chunk].during(kind) for kind, chunk in actions.rows])
    left = np.cumsum((leaves - finds)[of], axis=0)
    during = left - leaves[of] + runs[of]
    if len(pairs := actions.pairs):
        # What the forward needs at its fullest beyond what it leaves, as it begins until it ends.
        during[pairs + 1] += (runs - leaves)[of[pairs]] - _spared(actions, needs)
        during[pairs] = (left - leaves[of])[pairs]
    sign = [_FORWARDS[kind] * needs[chunk].kept.activations for kind, chunk in actions.rows]
    kept = np.cumsum(np.array(sign)[of])
    host = host_left = np.zeros(len(actions))
    if len(actions.trips.row) and any(needs[chunk].sent for _, chunk in actions.rows):
        away, host, host_left = _away(actions, needs)
        during[:, 0] -= away
        left[:, 0] -= away
    return Walk(actions, during, left, host, host_left, kept)


def _spared(actions: Columns, needs: Mapping[int, Footprint]) -> Bytes:
    """What the two passes of each pair never hold at a time."""
    chunks = [chunk for _, chunk in actions.rows]
    pairs = [(chunks[actions.row[at]], chunks[actions.row[at + 1]]) for at in actions.pairs]
    own = {pair: spared(needs[pair[0]], needs[pair[1]]) for pair in set(pairs)}
    return _table([own[pair] for pair in pairs])


def _table(of_pass: Sequence[Held]) -> Bytes:
    return np.array([(held.activations, held.logits, held.working) for held in of_pass])


def _away(actions: Columns, needs: Mapping[int, Footprint]) -> tuple[Bytes, Bytes, Bytes]:
    """Bytes per action that are on the host only; on the host while it runs; and after it."""
    trips, end = actions.trips, len(actions) + 1
    size = np.array([needs[chunk].sent for _, chunk in actions.rows])[trips.row]
    turns = np.column_stack((trips.gone, trips.back)).ravel()
    only = _sums(turns, np.column_stack((size, -size)).ravel(), end)
    arrived, returned = _sums(trips.out, size, end), _sums(trips.back, size, end)
    came, went = np.cumsum(arrived)[:-1], np.cumsum(returned)[:-1]
    return np.cumsum(only)[:-1], came - went + returned[:-1], came - went


def _sums(places: Numbers, sizes: Bytes, count: int) -> Bytes:
    """What falls on each of so many places, added up in order."""
    return np.asarray(np.bincount(places, sizes, count), np.float64)


def enough_microbatches(schedule: Schedule, stages: int, chunks: int, microbatches: int) -> int:
    """Micro-batches whose walk passes the same peak as the whole step: the warm-up and one whole
    period of the steady state, after which a repeating order holds what it held a period before;
    the cool-down is the same."""
    period = schedule.period(stages, chunks, microbatches)
    if period is None:
        return microbatches
    least = schedule.warmup_microbatches(stages, chunks, microbatches) + period
    return microbatches if microbatches <= least else least + (microbatches - least) % period
