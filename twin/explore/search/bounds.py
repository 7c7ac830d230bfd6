"""The least time and the least memory of a layout, before it is planned: admissible bounds for a
search.

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

The least memory of a stage: weights, gradients and optimizer states of its layers as ZeRO shards
them (the ledger's own accounting, `twin.planning.memory.states`, one layer at a time), the
runtime's reserve, and the activations that wait at the moment of the schedule's order at which most
chunk forwards wait. Of activations that go to the host, one chunk's count, which are on their way.
Working sets, buffers and logits are left out. So a layout that is refused here cannot fit; one that
is not may still not fit: the plan's ledger decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from twin.explore.search.layer_time_bounds import ModelPart, ModelTimes
from twin.planning.memory import states
from twin.planning.mesh import lay_out
from twin.planning.stages import balance, split
from twin.planning.types import Chunk
from twin.planning.walk import enough_microbatches
from twin.scenario import Scenario
from twin.schedules.base import ChunkMap, Pass, Schedule

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TimeBound:
    """The bound of one way to cut the model over stages, for any number of micro-batches. Arrays
    have a number for each stage (ns)."""

    parts: tuple[ModelPart, ...]
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


def time_bound(
    model: ModelTimes,
    parts: tuple[ModelPart, ...],
    pipeline: tuple[Schedule, int],
    *,
    tight: bool = False,
) -> TimeBound:
    """The bound of a model cut into these parts, for a `pipeline`: its schedule and its stages.
    Where passes run in pairs, a `tight` bound orders the kernels and transfers of every pair, which
    takes milliseconds; otherwise a pair takes at least the kernels of both."""
    schedule, stages = pipeline
    chunk_map = schedule.chunk_map(stages, len(parts) // stages)
    ahead = [0.0, *accumulate(part.passes["F"].longest for part in parts)]
    behind = [0.0, *accumulate(part.passes["I"].longest for part in parts)]
    places: list[list[int]] = [[] for _ in range(stages)]
    for chunk, stage in enumerate(chunk_map.stage_of):
        places[stage].append(chunk_map.part_of[chunk])
    held = [[parts[place] for place in own] for own in places]
    alike = {tuple(map(id, own)): own for own in held}
    known = {key: _stage(own, schedule, model if tight else None) for key, own in alike.items()}
    times = [known[tuple(map(id, own))] for own in held]
    return TimeBound(
        parts=parts,
        chunk_map=chunk_map,
        arrival=np.array([min(ahead[place] for place in own) for own in places]),
        whole=np.array([whole for whole, _ in times]),
        due=np.array([due for _, due in times]),
        tail=np.array([min(behind[place] for place in own) for own in places]),
        holds=np.array([_holds(own, len(model.kinds)) for own in held]),
        kept=np.array([max(part.kept for part in own) for own in held]),
    )


def _holds(parts: list[ModelPart], kinds: int) -> list[int]:
    counts = Counter(layer.index for part in parts for layer in part.layers)
    return [counts[index] for index in range(kinds)]


def parts(model: ModelTimes, shape: tuple[int, int]) -> tuple[ModelPart, ...]:
    """The parts of a model over `shape`, stages and parts per stage, by the time of its layers, as
    a plan cuts it where no split is written."""
    blocks, tail = model.blocks, model.tail
    own, behind = [layer.weight for layer in blocks], sum(layer.weight for layer in tail)
    ranges = split(balance(own, model.stack[0].weight, behind, *shape))
    cut = [tuple(blocks[one.start : one.stop]) for one in ranges]
    cut[0] = (model.stack[0], *cut[0])
    cut[-1] = (*cut[-1], *tail)
    return tuple(map(model.part, cut))


def _stage(
    held: list[ModelPart], schedule: Schedule, model: ModelTimes | None
) -> tuple[float, float]:
    """T and D of a stage that holds these parts; with `model` tight."""
    transfers: defaultdict[int, float] = defaultdict(float)
    whole = due = 0.0
    for part in held:
        of_part = _turns(part, schedule, model)
        whole += min(time for time, _ in of_part)
        due += min(time for _, time in of_part)
        for kind in ("F", "B"):
            for stream, time in part.passes[kind].busy.items():
                transfers[stream] += time
    return max(whole, *transfers.values(), 0.0), due


def _turns(
    part: ModelPart, schedule: Schedule, model: ModelTimes | None
) -> list[tuple[float, float]]:
    """T and D of one part in each way in which the schedule may run its passes: in pairs or one by
    one, with whole backwards or their halves."""
    passes = part.passes
    forward, found = passes["F"], list[tuple[float, float]]()
    for kind in _backwards(schedule):  # pyright: ignore[reportArgumentType]  a frozen section has a hash
        back, late = passes[kind], passes["W"].kernels if kind == "I" else 0.0
        ways = [forward.longest + back.longest]
        if schedule.pairs:
            pair = model.pair(part, kind) if model is not None else 0.0
            kernels = forward.kernels + back.kernels
            ways.append(max(kernels, forward.longest, back.longest, pair))
        found += [(time + late, time) for time in ways]
    return found


@cache
def _backwards(schedule: Schedule) -> tuple[Pass, ...]:
    """The kinds of backward passes that a schedule runs."""
    virtual = next(n for n in (1, 2) if not _wrong_chunks(schedule, n))
    kinds = {one.kind for actions in schedule.order(2, virtual, 8) for one in actions}
    return tuple(kind for kind in ("B", "I") if kind in kinds)


def _wrong_chunks(schedule: Schedule, chunks: int) -> bool:
    return any(one.field == "parallel.virtual" for one in schedule.problems(2, chunks, 8))


def states_bytes(scenario: Scenario, model: ModelTimes) -> Numbers:
    """Bytes that one layer of each kind holds on the device for the whole step."""
    mesh = lay_out(scenario)
    found: list[float] = []
    for kind in model.kinds:
        # A layer as the only one of a chunk. What is counted in another layer (a tied table) is
        # left out: it may be on the same stage.
        device, _ = states(
            scenario, mesh, [Chunk(0, 0, (kind.layer,), kind.layer.weights, 0, kind.layer.frozen)]
        )
        device.pop("optimizer_buffers", None)
        found.append(sum(device.values()))
    return np.array(found)


def waiting(time_bound: TimeBound, schedule: Schedule, microbatches: int) -> Numbers:
    """Bytes of activations on every stage that wait for their backward on the device, where none
    goes to the host: of all on the first stage, which keeps most, of the largest chunk
    elsewhere."""
    walked = enough_microbatches(schedule, time_bound.stages, time_bound.per_stage, microbatches)
    # A frozen section has a hash, which pyright does not see.
    counts = _counts(schedule, time_bound.stages, time_bound.per_stage, walked)  # pyright: ignore[reportArgumentType]
    part_of = time_bound.chunk_map.part_of
    first = sum(count * time_bound.parts[part_of[chunk]].kept for chunk, count in counts)
    found = time_bound.kept.copy()
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
