"""For how many layers stages have room, before a layout is planned: bounds for a search.

On every stage there is room for so many layers of each kind, with weights, gradients and optimizer
states as ZeRO shards them (the ledger's own accounting, `twin.planning.memory.states`), and with
the activations that wait when most chunk forwards wait. Where all stages together have too little
room, no split fits. Of activations that go to the host, one chunk's count, which are on their way.
Working sets, buffers and logits are left out. So a layout that is refused here cannot fit; one that
is not may still not fit: the plan's ledger decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from twin.arch.ops import BLOCKS
from twin.explore.search.least_times import LayerTimes, kinds_of
from twin.planning.columns import Columns, columns
from twin.planning.memory import states
from twin.planning.mesh import lay_out
from twin.planning.types import Chunk
from twin.planning.walk import enough_microbatches
from twin.scenario import Scenario
from twin.schedules.base import Schedule

QUARTERS: Final = 4
"""OURS: stages whose order is walked for what waits; a stage between two of them holds at least
what the later one does."""


class Room(NamedTuple):
    """Neighbouring stages, and the transformer layers for which each has room."""

    stages: int
    layers: int


def needed(rooms: Sequence[Room], layers: int) -> int:
    """How many stages hold so many layers at least."""
    count = 0
    for room in sorted(rooms, key=lambda one: -one.layers):
        if layers <= 0 or room.layers == 0:
            break
        taken = min(room.stages, -(-layers // room.layers))
        count, layers = count + taken, layers - taken * room.layers
    return max(1, count)


def fullest(rooms: Sequence[Room], layers: int) -> int:
    """Layers on the stage with most of them, at least."""
    left, stages = layers, sum(room.stages for room in rooms)
    for room in sorted(rooms, key=lambda one: one.layers):
        if stages * room.layers >= left:
            break
        left, stages = left - room.stages * room.layers, stages - room.stages
    return -(-left // max(1, stages))


@dataclass(frozen=True, slots=True)
class Held:
    """Layers of a kind: how many there are, and the bytes that each holds on the device for the
    whole step."""

    count: int
    each: float


def held_bytes(scenario: Scenario) -> tuple[Held, ...]:
    """What layers hold, in the order of `model_times`."""
    mesh, found = lay_out(scenario), list[Held]()
    for layer, count in kinds_of(scenario):
        # A layer as the only one of a chunk. What is counted in another layer (a tied table) is
        # left out: it may be on the same stage.
        device, _ = states(scenario, mesh, [Chunk(0, 0, (layer,), layer.weights, 0, layer.frozen)])
        device.pop("optimizer_buffers", None)
        found.append(Held(count, sum(device.values())))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Forwards of a chunk that wait for their backward when most do, on some neighbouring stages:
    of the chunk with least, and of the mean one."""

    stages: int
    least: float
    mean: float


def rooms(
    model: Sequence[LayerTimes],
    held: Sequence[Held],
    waits: Sequence[Waiting],
    budget: float,
    *,
    copies: int = 1,
    usual: bool = False,
) -> tuple[Room, ...] | None:
    """For how many layers stages have room, all of the smallest kind; None where they have too
    little for all layers of some kind, of which there are so many `copies`. The `usual` room is
    that with the mean of what waits for all layers of the largest kind, and no bound."""
    most: list[int] | None = None
    for layer, own in zip(model, held, strict=True):
        if layer.layer.kind in BLOCKS:
            counts = (one.mean if usual else one.least for one in waits)
            here = [int(budget // (own.each + count * layer.kept)) for count in counts]
            room = sum(one.stages * n for one, n in zip(waits, here, strict=True))
            if room < copies * layer.count:
                return None
            most = [*map(min if usual else max, here, most or here)]
    found = tuple(Room(one.stages, n) for one, n in zip(waits, most or (), strict=True))
    layers = copies * sum(one.count for one in model if one.layer.kind in BLOCKS)
    return found if sum(one.stages * one.layers for one in found) >= layers else None


def waiting(
    schedule: Schedule, shape: tuple[int, int], microbatches: int, *, away: bool
) -> tuple[Waiting, ...]:
    """What waits on every stage of a `shape`, stages and chunks on each. Of what goes `away` to the
    host, only what is not there yet or no more."""
    walked = enough_microbatches(schedule, *shape, microbatches)
    return _waiting(schedule, shape, walked, away)  # pyright: ignore[reportArgumentType]


@lru_cache(maxsize=4 * QUARTERS)
def _order(schedule: Schedule, stage: int, shape: tuple[int, int], microbatches: int) -> Columns:
    """The last few orders: what stays and what goes away is asked of each."""
    return columns(schedule.stage_order(stage, *shape, microbatches))


@lru_cache(maxsize=4096)
def _waiting(
    schedule: Schedule, shape: tuple[int, int], microbatches: int, away: bool
) -> tuple[Waiting, ...]:
    stages, chunk_map = shape[0], schedule.chunk_map(*shape)
    per_stage = len(chunk_map.stage_of) // stages
    ends = sorted({-(-stages * part // QUARTERS) for part in range(1, QUARTERS + 1)})
    found: list[Waiting] = []
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        order = _order(schedule, end - 1, shape, microbatches)  # pyright: ignore[reportArgumentType]
        sign = np.array([(kind == "F") - (kind in "BI") for kind, _ in order.rows])
        # What weights' gradients need stays: inputs, and gradients of outputs beside them.
        late = np.array([2 * (kind == "I") - 2 * (kind == "W") for kind, _ in order.rows])
        here = np.cumsum((sign + late)[order.row])
        if away:
            turns = (order.trips.gone, order.trips.back)
            gone, back = (np.bincount(at, minlength=len(order) + 1) for at in turns)
            here -= np.cumsum(gone - back)[:-1]
        # A forward in a pair fills as the backward behind it empties: it counts when both end.
        most = int(np.where(order.paired, 0, np.cumsum(sign[order.row])).argmax())
        by_row = sign * np.bincount(order.row[: most + 1], minlength=len(sign))
        own = [chunk for chunk, at in enumerate(chunk_map.stage_of) if at == end - 1]
        chunks = np.array([chunk for _, chunk in order.rows])
        least = min(int(by_row[chunks == chunk].sum()) for chunk in own)
        if away or chunk_map.copies > 1:
            least = 0
        mean = float(here.max()) / per_stage
        found.append(Waiting(end - begin, max(1 / per_stage, least), mean))
    return tuple(found)
