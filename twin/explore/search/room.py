"""The least memory of a layout, before it is planned: an admissible bound for a search.

Of a stage: weights, gradients and optimizer states of its layers as ZeRO shards them (the ledger's
own accounting, `twin.planning.memory.states`, one layer at a time), the runtime's reserve, and the
activations that wait at the one moment of the schedule's order at which most chunk forwards wait;
of what is sent to the host only one chunk's, which is on its way. Working sets, buffers and logits
are left out. So what is refused here cannot fit; what is not may still not: the plan's ledger says.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np

from twin.arch.ops import Layer
from twin.explore.search.course import Course, Numbers
from twin.explore.search.paces import Paces
from twin.planning.memory import states
from twin.planning.mesh import lay_out
from twin.planning.types import Chunk
from twin.planning.walk import enough_microbatches
from twin.scenario import Scenario
from twin.schedules import Schedule


def standing(scenario: Scenario, paces: Paces) -> Numbers:
    """Bytes that one layer of each kind holds on the device for the whole step."""
    mesh = lay_out(scenario)
    found: list[float] = []
    for pace in paces.kinds:
        device, _ = states(scenario, mesh, [_alone(pace.layer)])
        device.pop("optimizer_buffers", None)
        found.append(sum(device.values()))
    return np.array(found)


def _alone(layer: Layer) -> Chunk:
    """A layer as the only one of a chunk. What is counted in another layer (a tied table) is left
    out: it may be on the same stage."""
    return Chunk(0, 0, (layer,), layer.weights, 0, layer.frozen)


def waiting(course: Course, schedule: Schedule, microbatches: int) -> Numbers:
    """Bytes of activations on every stage that wait for their backward on the device, where none
    goes to the host: of all on the first stage, which keeps most, of the largest chunk
    elsewhere."""
    walked = enough_microbatches(schedule, course.stages, course.per_stage, microbatches)
    # A frozen section has a hash, which pyright does not see.
    counts = _counts(schedule, course.stages, course.per_stage, walked)  # pyright: ignore[reportArgumentType]
    part_of = course.chunk_map.part_of
    first = sum(count * course.parts[part_of[chunk]].kept for chunk, count in counts)
    found = course.kept.copy()
    found[0] = max(found[0], first)
    return found


@lru_cache(maxsize=4096)
def _counts(
    schedule: Schedule, stages: int, per_stage: int, microbatches: int
) -> tuple[tuple[int, int], ...]:
    """Of the first stage, which keeps most: how many forwards of each chunk wait for their backward
    when most do."""
    actions = schedule.stage_order(0, stages, per_stage, microbatches)
    steps = np.array([1 if one.kind == "F" else -1 if one.kind in "BI" else 0 for one in actions])
    fullest = int(np.cumsum(steps).argmax())
    counts: Counter[int] = Counter()
    for one, step in zip(actions[: fullest + 1], steps[: fullest + 1].tolist(), strict=True):
        counts[one.chunk] += step
    return tuple(counts.items())
