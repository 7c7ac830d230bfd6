"""A stage's ordered actions, walked: what is alive, where, while each of them runs.

Independent of times: a forward leaves what its backward needs, a backward frees it, and what the
memory policy offloads waits on the host in between (`twin.plan.offload`), where it counts twice
while it is copied. A paired forward runs with the backward behind it, so that one has the working
sets of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.plan.footprint import Footprint, Held
from twin.plan.offload import trips
from twin.schedules import Schedule
from twin.schedules.action import Action, Pass

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


@dataclass(frozen=True, slots=True)
class Walk:
    """A stage's actions with the bytes that passes hold, one row or number per action."""

    actions: tuple[Action, ...]
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
        action = self.actions[at]
        past = Counter(one.kind for one in self.actions[:at])
        waiting = past["F"] - past["B"] - past["I"]
        return Peak(
            action,
            Held(*self.during[at].tolist()),
            waiting + (action.kind == "F"),
            past["I"] - past["W"],
        )


def walk(
    actions: Sequence[Action], needs: Mapping[int, Footprint], *, offload: bool = False
) -> Walk:
    """Walks a stage's ordered actions; `offload` sends what forwards keep to the host and back."""
    if not actions:
        raise ValueError("a stage without actions has no peak")
    rows: list[tuple[Pass, int]] = list(dict.fromkeys((one.kind, one.chunk) for one in actions))
    place = {key: number for number, key in enumerate(rows)}
    of = np.array([place[one.kind, one.chunk] for one in actions])

    def table(of_pass: list[Held]) -> Bytes:
        return np.array([tuple(held.categories().values()) for held in of_pass])[of]

    finds = table([needs[chunk].before(kind) for kind, chunk in rows])
    leaves = table([needs[chunk].after(kind) for kind, chunk in rows])
    runs = table([needs[chunk].during(kind) for kind, chunk in rows])
    left = np.cumsum(leaves - finds, axis=0)
    during = left - leaves + runs
    paired = np.flatnonzero([one.paired for one in actions[:-1]])
    # What the forward needs at its fullest beyond what it leaves.
    during[paired + 1] += (runs - leaves)[paired]
    sign = [_FORWARDS[kind] * needs[chunk].kept.activations for kind, chunk in rows]
    kept = np.cumsum(np.array(sign)[of])
    away, host, host_left = _away(actions, needs) if offload else np.zeros((3, len(actions)))
    during[:, 0] -= away
    left[:, 0] -= away
    return Walk(tuple(actions), during, left, host, host_left, kept)


def _away(actions: Sequence[Action], needs: Mapping[int, Footprint]) -> tuple[Bytes, Bytes, Bytes]:
    """Bytes per action that are on the host only; on the host while it runs; and after it."""
    only, arrived, returned = np.zeros((3, len(actions) + 1))
    for (chunk, _), trip in trips(actions).items():
        size = needs[chunk].kept.activations
        only[trip.gone] += size
        only[trip.back] -= size
        arrived[trip.out] += size
        returned[trip.back] += size
    came, went = np.cumsum(arrived)[:-1], np.cumsum(returned)[:-1]
    return np.cumsum(only)[:-1], came - went + returned[:-1], came - went


def enough_microbatches(schedule: Schedule, stages: int, chunks: int, microbatches: int) -> int:
    """Micro-batches whose walk passes the same peak as the whole step: the warm-up and one whole
    period of the steady state, after which a repeating order holds what it held a period before;
    the cool-down is the same."""
    period = schedule.period(stages, chunks, microbatches)
    if period is None:
        return microbatches
    least = schedule.warmup_microbatches(stages, chunks, microbatches) + period
    return microbatches if microbatches <= least else least + (microbatches - least) % period
