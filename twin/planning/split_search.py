"""Which layers each chunk holds so that a step is shortest, by local search over a light model of
the step (`twin.planning.step_length`).

The search begins with the even splits, the balanced one (`twin.planning.stages`), and splits that
are even but for their ends; where all splits are few, with all. From the best it moves one layer at
a time from one chunk to another, as long as the step gets shorter. Only moves that shorten the
longest path can help, since a path that got longer bounds the step from below. What is found is a
draft beside the balanced split and the even ones; events decide between those that the model has
less than `FAR` apart (`twin.engine.plan`). Where they say another length than the model, by more
than `AGREE`, it seeks once more with turns and messages that last as long as they did.

A split that does not fit in memory gives way to the shortest that does (`search_within`). While
none does, layers leave the stages that are too full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement, islice, pairwise, permutations, product
from math import comb
from typing import Final, TypeAlias

from twin.arch.remembered import remembered
from twin.planning.stages import evenly
from twin.planning.step_length import Split, StepCosts, StepLength
from twin.schedules.base import Schedule

Over: TypeAlias = Callable[[Split], Sequence[float]]
"""Bytes by which a split exceeds the memory of every stage."""

SURE: Final = 0.01
"""OURS: by so much a step has to be shorter for memory policies that differ by stage."""
UNSURE: Final = 0.05
"""The same where a rank waits for more than kernels and the exchanges between them."""
FAR: Final = 0.25
"""OURS: by so much a step has to be longer to be so by events, too. Of some 1,700 random layouts
the model ordered a few wrongly that it had 10 to 16 % apart."""
FARTHER: Final = 0.5
"""OURS: the same where passes run in pairs and activations go to the host. There the ratio of
events to the model differs by up to 33 % from split to split."""
AGREE: Final = 0.01
"""OURS: of a step, by which the model may differ from events before they correct it."""
DESCENTS: Final = 4
"""OURS: where events have corrected the model; one of 852 splits ended 2 % above another's."""
APART: Final = 4
"""Near splits to begin with often end alike."""
BATCH: Final = 64
"""Most splits whose steps are looked at in one round."""
MOST_DOUBLE: Final = 1024
"""Most splits after two moves that are looked at in one round."""
LOOKED_AT: Final = 2**17
"""Most turns of one round, over its splits: some 5 ms on one core."""
ROUNDS: Final = 12
"""Most rounds of moves."""
AT_FIRST: Final = (0, -1, -2, 1)
AT_LAST: Final = (0, -1, -2, -3, 1)
"""Layers more than on other chunks, on the first and on the last, of the splits to begin with."""


@remembered(16)
def step_length(
    by_policy: tuple[StepCosts, ...], schedule: Schedule, shape: tuple[int, int, int]
) -> StepLength:
    """The light model of a layout, which several ask: it knows the pairs that it has met."""
    return StepLength(by_policy, schedule, shape)


@remembered(512)
def shortest(
    by_policy: tuple[StepCosts, ...],
    schedule: Schedule,
    shape: tuple[int, int, int],
    balanced: Split,
    policies: tuple[int, ...] = (0,),
) -> Split:
    """The split with which a step is shortest; `shape`: stages, chunks per stage, micro-batches;
    `policies`: the place of each part's memory policy in `by_policy`."""
    return search(step_length(by_policy, schedule, shape), balanced, policies)[0]


def usual_splits(balanced: Split) -> list[Split]:
    """The balanced split and the even ones."""
    return list(dict.fromkeys((balanced, *evenly(sum(balanced), len(balanced)))))


def surely_shorter(
    step: StepLength, split: Split, policies: Sequence[int], length: int, other: int
) -> bool:
    """Whether a step is shorter than another by more than the model's usual error."""
    if length >= (1 - SURE) * other:
        return False
    gain = SURE if step.waits_for_kernels(split, policies) else UNSURE
    return length < (1 - gain) * other


def search(
    step: StepLength, balanced: Split, policies: Sequence[int] = (0,), descents: int = 1
) -> tuple[Split, int, int]:
    """The split with the shortest step that is found, and nanoseconds of it and of the balanced
    one; by so many descents, of which each begins `APART` splits behind the one before."""
    starts = first_splits(step, balanced)
    lengths = step.of(starts, tuple(policies))
    rows = sorted(zip(lengths, map(_unevenness, starts), starts, strict=True))
    if step.turns * BATCH > LOOKED_AT:
        descents = 1
    found = [_descended(step, row, policies) for row in rows[: descents * APART : APART]]
    best, least = min(found, key=lambda one: (one[1], _unevenness(one[0])))
    return best, least, lengths[0]


def search_within(
    step: StepLength, balanced: Split, over: Over, policies: Sequence[int] = (0,)
) -> Split:
    """The split with the shortest step that is found of those that fit in memory; where none is
    found, the one that exceeds it least. As long as it does, layers leave full stages, or go from
    one of their parts to another."""
    own = _nearest(step, first_splits(step, balanced), over, policies)
    for left in range(2 * ROUNDS, 0, -1):
        full = {stage for stage, size in enumerate(over(own[3])) if size}
        parts = step.stages_of_part
        following = [
            moved
            for moved, here, there in one_moved(own[3])
            if full & parts[here]
            if not full & parts[there] or parts[here] == parts[there]
        ]
        following = following if full else moved_splits(step, own[3], policies)
        better = _nearest(step, following, over, policies) if following else own
        # Of what exceeds memory each round has to take its share, else none will fit.
        if better[:3] >= own[:3] or better[0] > own[0] * (1 - 1 / left):
            break
        own = better
    return own[3]


def _nearest(
    step: StepLength, splits: Sequence[Split], over: Over, policies: Sequence[int]
) -> tuple[float, int, tuple[int, int], Split]:
    """The shortest of splits that fits, of those that are short; else the one that exceeds memory
    least; with these bytes."""
    best: tuple[float, int, tuple[int, int], Split] | None = None
    lengths = step.of(splits, tuple(policies))
    rows = zip(lengths, map(_unevenness, splits), splits, strict=True)
    for length, unevenness, split in sorted(rows)[: BATCH // 2]:
        row = sum(over(split)), length, unevenness, split
        if best is None or row < best:
            best = row
        if not best[0]:
            break
    assert best is not None
    return best


def first_splits(step: StepLength, balanced: Split) -> list[Split]:
    """The splits that a search begins with."""
    known = usual_splits(balanced)
    if comb(step.layers + step.parts - 1, step.layers) <= BATCH:
        return list(dict.fromkeys((*known, *_every(step.layers, step.parts))))
    starts = list(dict.fromkeys((*known, *_light_ends(step.layers, step.parts))))
    return starts[: max(len(known), _batch(step))]


def _every(layers: int, parts: int) -> Iterator[Split]:
    for cuts in combinations_with_replacement(range(layers + 1), parts - 1):
        yield tuple(end - first for first, end in pairwise((0, *cuts, layers)))


def _batch(step: StepLength) -> int:
    return max(BATCH // 4, min(BATCH, LOOKED_AT // step.turns))


def _descended(
    step: StepLength, own: tuple[int, tuple[int, int], Split], policies: Sequence[int]
) -> tuple[Split, int]:
    """A split that no move of one layer makes better, and its nanoseconds."""
    for _ in range(ROUNDS):
        moves = moved_splits(step, own[2], policies)
        lengths = step.of(moves, tuple(policies)) if moves else ()
        rows = zip(lengths, map(_unevenness, moves), moves, strict=True)
        better = min(rows, default=own)
        if better[:2] >= own[:2]:
            break
        own = better
    return own[2], own[0]


def moved_splits(step: StepLength, split: Split, policies: Sequence[int]) -> list[Split]:
    """Splits after a move of one layer, those first that shorten the longest path most; and where
    these are few, after two moves."""
    most, weights = _batch(step), step.layer_weights(split, policies)
    single = [(weights[there] - weights[here], moved) for moved, here, there in one_moved(split)]
    if len(single) > most:
        return [moved for gain, moved in sorted(single)[:most] if gain < 0]
    double = (again for _, once in sorted(single) for again, *_ in one_moved(once))
    more = MOST_DOUBLE if len(single) <= BATCH // 2 else min(MOST_DOUBLE, LOOKED_AT // step.turns)
    return list(dict.fromkeys((*(moved for _, moved in single), *islice(double, more))))


def one_moved(split: Split) -> Iterator[tuple[Split, int, int]]:
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
