"""Which layers each chunk holds so that a step is shortest, by local search over a light model of
the step (`twin.planning.step_length`).

The search begins with the even splits, the balanced one (`twin.planning.stages`), and splits that
are even but for their ends. From the best it moves one layer at a time from one chunk to another,
as long as the step gets shorter. Only moves that shorten the longest path can help, since a path
that got longer bounds the step from below. The balanced split wins unless the best is shorter by
more than the model's usual error (`SURE`, `UNSURE`). Mirrored stages, as of DualPipe, keep the
balanced one: their pairs depend on the order of blocks, which the model leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, permutations, product
from typing import Final, TypeAlias

from twin.arch.remembered import remembered
from twin.planning.stages import evenly
from twin.planning.step_length import StepCosts, StepLength
from twin.schedules.base import Schedule

Split: TypeAlias = tuple[int, ...]

SURE: Final = 0.01
"""OURS: by so much a step has to be shorter for another split to win over the balanced one."""
UNSURE: Final = 0.05
"""The same where a rank waits for more than kernels and the exchanges between them: there the model
may order two splits wrongly by up to so much."""
BATCH: Final = 64
"""Most splits whose steps are looked at in one round."""
LOOKED_AT: Final = 2**17
"""Most turns of one round, over its splits: some 5 ms on one core."""
ROUNDS: Final = 12
"""Most rounds of moves."""
AT_FIRST: Final = (0, -1, -2, 1)
AT_LAST: Final = (0, -1, -2, -3, 1)
"""Layers more than on other chunks, on the first and on the last, of the splits to begin with."""


@remembered(512)
def shortest(
    costs: StepCosts, schedule: Schedule, shape: tuple[int, int, int], balanced: Split
) -> Split:
    """The split with which a step is shortest; `shape`: stages, chunks per stage, micro-batches."""
    step = StepLength(costs, schedule, shape)
    best, least, own = search(step, balanced)
    if least >= (1 - SURE) * own:
        return balanced
    gain = SURE if step.waits_for_kernels(best) else UNSURE
    return best if least < (1 - gain) * own else balanced


def search(step: StepLength, balanced: Split) -> tuple[Split, int, int]:
    """The split with the shortest step that is found, and nanoseconds of it and of the balanced
    one."""
    known = balanced, *evenly(step.layers, step.parts)
    starts = list(dict.fromkeys((*known, *_light_ends(step.layers, step.parts))))
    starts = starts[: max(len(known), _batch(step))]
    lengths = step(starts)
    rows = zip(lengths, map(_unevenness, starts), starts, strict=True)
    best, least = _descended(step, min(rows))
    return best, least, lengths[0]


def _batch(step: StepLength) -> int:
    return max(BATCH // 4, min(BATCH, LOOKED_AT // step.turns))


def _descended(step: StepLength, own: tuple[int, tuple[int, int], Split]) -> tuple[Split, int]:
    """A split that no move of one layer makes better, and its nanoseconds."""
    for _ in range(ROUNDS):
        moves = _moves(step, own[2])
        rows = zip(step(moves), map(_unevenness, moves), moves, strict=True) if moves else ()
        better = min(rows, default=own)
        if better[:2] >= own[:2]:
            break
        own = better
    return own[2], own[0]


def _moves(step: StepLength, split: Split) -> list[Split]:
    """Splits after a move of one layer, those first that shorten the longest path most; and where
    these are few, after two moves."""
    most, weights = _batch(step), step.layer_weights(split)
    single = [(weights[there] - weights[here], moved) for moved, here, there in _one_moved(split)]
    if len(single) > most:
        return [moved for gain, moved in sorted(single)[:most] if gain < 0]
    double = (again for _, once in sorted(single) for again, *_ in _one_moved(once))
    found = dict.fromkeys(moved for _, moved in single)
    found |= dict.fromkeys(islice(double, BATCH * BATCH // 4)) if len(single) <= BATCH // 2 else {}
    return list(found)


def _one_moved(split: Split) -> Iterator[tuple[Split, int, int]]:
    """Splits after one layer went from a part to another, and these two."""
    for here, there in permutations(range(len(split)), 2):
        if split[here]:
            counts = list(split)
            counts[here] -= 1
            counts[there] += 1
            yield tuple(counts), here, there


def _unevenness(split: Split) -> tuple[int, int]:
    """Of two equal steps the more even split is better, then that with more layers on late chunks,
    because early stages keep more activations alive."""
    return sum(one * one for one in split), -sum(place * one for place, one in enumerate(split))


def _light_ends(layers: int, parts: int) -> Iterator[Split]:
    """Splits that are even but for their first and last chunk; what does not divide is on late, on
    early or on middle chunks."""
    each = round(layers / parts)
    offsets = sorted(product(AT_FIRST, AT_LAST), key=lambda pair: sum(map(abs, pair)))
    for first, last in offsets:
        ends = max(0, each + first), max(0, each + last)
        rest = layers - sum(ends)
        if parts > 2 and rest >= 0:
            late, early = evenly(rest, parts - 2)
            shift = (parts - 2 - rest % (parts - 2)) // 2
            middle = (*late[shift:], *late[:shift])
            for between in (late, early, middle):
                yield (ends[0], *between, ends[1])
