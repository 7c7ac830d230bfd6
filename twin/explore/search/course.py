"""The least time of a step, whatever waits for whatever: an admissible bound for a search.

Of a stage, let A be the time before its first forward can begin (the least forwards of the parts
before), R its micro-batches per chunk, T the least time of one micro-batch through all its chunks,
forward and backward, D the same without weight gradients that are put off, and Z the backwards that
still have to run before it when its own last one has ended. A step then takes at least

    max over stages of max(A + R T, A + R D + Z)

since a stage's kernels run one after the other, and so do a stream's transfers, which T is no less
than. Where a schedule runs forwards in pairs with backwards, T counts for each part what is less,
its pair or its passes one by one, since it does both. Messages between stages, copies to the host,
what ends a step (reductions, update) and what shares links and SMs are left out: they add time.

With equal stages, free messages and no pairs this is (m + p - 1)(F + B) for 1F1B (Narayanan et al.
2021, section 2.2.1), which 1F1B then takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from twin.explore.search.paces import Paces, Part
from twin.planning.stages import balance, split
from twin.schedules import ChunkMap, Schedule
from twin.schedules.action import Pass

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """The bound of one way to cut the model over stages, for any number of micro-batches. Arrays
    have a number for each stage (ns)."""

    parts: tuple[Part, ...]
    chunk_map: ChunkMap
    arrival: Numbers
    whole: Numbers
    """T of the module."""
    due: Numbers
    """D of the module."""
    tail: Numbers
    holds: Numbers
    """Layers of each kind on every stage: [stages, kinds]."""
    kept: Numbers
    """Bytes that the fullest chunk of every stage keeps of one micro-batch."""

    @property
    def stages(self) -> int:
        """Of the pipeline."""
        return len(self.arrival)

    @property
    def per_stage(self) -> int:
        """Chunks per stage, each copy of the model by itself."""
        return len(self.parts) // self.stages

    def nanoseconds(self, runs: int) -> float:
        """The least step of so many micro-batches per chunk."""
        whole = self.arrival + runs * self.whole
        due = self.arrival + runs * self.due + self.tail
        return float(max(whole.max(), due.max()))


def course(
    paces: Paces, parts: tuple[Part, ...], pipeline: tuple[Schedule, int], *, tight: bool = False
) -> Course:
    """The bound of a model cut into these parts, for a `pipeline`: its schedule and its stages.
    Where passes run in pairs, a `tight` one orders the kernels and transfers of every pair, which
    takes milliseconds; otherwise a pair takes at least the kernels of both."""
    schedule, stages = pipeline
    chunk_map = schedule.chunk_map(stages, len(parts) // stages)
    forward = [part.passes["F"].longest for part in parts]
    reverse = [part.passes["I"].longest for part in parts]
    ahead = [0.0, *accumulate(forward)]
    behind = [0.0, *accumulate(reverse)]
    own = [
        [chunk for chunk, stage in enumerate(chunk_map.stage_of) if stage == at]
        for at in range(stages)
    ]
    part_of = chunk_map.part_of
    made: dict[tuple[int, ...], tuple[float, float]] = {}
    times: list[tuple[float, float]] = []
    for held in own:
        key = tuple(id(parts[part_of[c]]) for c in held)
        if key not in made:
            made[key] = _stage(
                [parts[part_of[c]] for c in held], schedule, paces if tight else None
            )
        times.append(made[key])
    return Course(
        parts=parts,
        chunk_map=chunk_map,
        arrival=np.array([min(ahead[part_of[c]] for c in held) for held in own]),
        whole=np.array([whole for whole, _ in times]),
        due=np.array([due for _, due in times]),
        tail=np.array([min(behind[part_of[c]] for c in held) for held in own]),
        holds=np.array([_holds([parts[part_of[c]] for c in held], paces) for held in own]),
        kept=np.array([max(parts[part_of[c]].kept for c in held) for held in own]),
    )


def _holds(parts: list[Part], paces: Paces) -> list[int]:
    counts = [0] * len(paces.kinds)
    for part in parts:
        for pace in part.layers:
            counts[pace.index] += 1
    return counts


def parts(paces: Paces, shape: tuple[int, int]) -> tuple[Part, ...]:
    """The parts of a model over `shape`, stages and parts per stage, by the time of its layers, as
    a plan cuts it where no split is written."""
    stages, per_stage = shape
    counts = balance(
        [pace.weight for pace in paces.blocks],
        paces.stack[0].weight,
        sum(pace.weight for pace in paces.tail),
        stages,
        per_stage,
    )
    ranges = split(counts)
    return tuple(
        paces.part(
            (
                *(paces.stack[:1] if index == 0 else ()),
                *paces.blocks[own.start : own.stop],
                *(paces.tail if index == len(ranges) - 1 else ()),
            )
        )
        for index, own in enumerate(ranges)
    )


def _stage(held: list[Part], schedule: Schedule, paces: Paces | None) -> tuple[float, float]:
    """T and D of a stage that holds these parts; with `paces` tight ones."""
    transfers: dict[int, float] = {}
    whole = due = 0.0
    for part in held:
        of_part = _turns(part, schedule, paces)
        whole += min(time for time, _ in of_part)
        due += min(time for _, time in of_part)
        for kind in ("F", "B"):
            for stream, time in part.passes[kind].busy.items():
                transfers[stream] = transfers.get(stream, 0.0) + time
    return max(whole, *transfers.values(), 0.0), due


def _turns(part: Part, schedule: Schedule, paces: Paces | None) -> list[tuple[float, float]]:
    """T and D of one part in each way in which the schedule may run its passes: in pairs or one by
    one, with whole backwards or their halves."""
    passes = part.passes
    forward, late = passes["F"].longest, passes["W"].kernels
    found: list[tuple[float, float]] = []
    for kind in _backwards(schedule):  # pyright: ignore[reportArgumentType]  a frozen section has a hash
        rest = late if kind == "I" else 0.0
        alone = forward + passes[kind].longest
        found.append((alone + rest, alone))
        if schedule.pairs:
            together = max(
                passes["F"].kernels + passes[kind].kernels, forward, passes[kind].longest
            )
            if paces is not None:
                together = max(together, paces.pair(part, kind))
            found.append((together + rest, together))
    return found


@cache
def _backwards(schedule: Schedule) -> tuple[Pass, ...]:
    """The kinds of backward passes that a schedule runs."""
    virtual = next(n for n in (1, 2) if not _wrong_chunks(schedule, n))
    kinds = {one.kind for actions in schedule.order(2, virtual, 8) for one in actions}
    return tuple(kind for kind in ("B", "I") if kind in kinds)


def _wrong_chunks(schedule: Schedule, chunks: int) -> bool:
    return any(one.field == "parallel.virtual" for one in schedule.problems(2, chunks, 8))
