"""The compiled evaluation is that of the tests' own player; what is found is as short as any order
of a small step, never longer than a known one, and never shorter than the bound."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.schedules.player import Times, play
from tests.schedules.test_orders import SETTINGS, schedule_of
from twin.explore.schedules.bound import least_ns
from twin.explore.schedules.known import dualpipe_v
from twin.explore.schedules.search import Order, Search, Words, order_of, peaks
from twin.explore.schedules.tables import Tables, code_of, turn_of
from twin.schedules.base import ChunkMap, Schedule, looped
from twin.schedules.custom import custom
from twin.schedules.notation import Turn, turns_of

Shape = tuple[int, int, int]


def tables_of(
    chunk_map: ChunkMap, microbatches: int, times: Times, *, room: float = np.inf
) -> Tables:
    """Chunks that take these times; each forward holds a byte until its weights' gradient."""
    size, stages = len(chunk_map.stage_of), max(chunk_map.stage_of) + 1
    codes = np.zeros((9, 4 * size + 2 * size * size), np.int64)
    codes[:3] = -1
    held = np.zeros((2, codes.shape[1]))
    lasts = {"F": times.forward, "B": times.backward, "I": times.inputs, "W": times.weights}
    for code in range(codes.shape[1]):
        turn = turn_of(code, size)
        both = sum(lasts[kind] for kind, _ in turn)
        if len(turn) > 1 and turn[1][0] == "B" and times.pair is not None:
            both = times.pair
        codes[4, code], codes[7, code], codes[8, code] = both, both, both
        codes[3, code] = turn[len(turn) - 1][0] == "I"
        for kind, chunk in turn:
            codes["FBIW".index(kind) if kind in "FB" else {"I": 1, "W": 2}[kind], code] = chunk
        held[1, code] = sum({"F": 1, "B": -1, "I": 0, "W": -1}[kind] for kind, _ in turn)
        held[0, code] = sum(kind == "F" for kind, _ in turn)
    beside = [
        [-1 if one is None else one for one in way] for way in (chunk_map.before, chunk_map.after)
    ]
    stage = chunk_map.stage_of
    crossing = [
        [times.message * (one >= 0 and stage[one] != stage[own]) for own, one in enumerate(way)]
        for way in beside
    ]
    chunks = np.array([*beside, stage, *crossing, [0] * size], np.int64)
    ends = np.array([[room] * stages, [0.0] * stages])
    return Tables(chunks, codes, held, ends, microbatches // chunk_map.copies, staggered=False)


def words_of(schedule: Schedule, shape: Shape) -> Words:
    return tuple(tuple(turns_of(order)) for order in schedule.order(*shape))


def searched(tables: Tables, known: list[Words], *, pairs: bool = False, turns: int = 6) -> Search:
    search = Search(tables, known, pairs=pairs, seed=1)
    search.rounds(3, turns)
    return search


def test_every_code_is_a_turn_and_back() -> None:
    for code in range(4 * 6 + 2 * 36):
        assert code_of(turn_of(code, 6), 6) == code


@pytest.mark.parametrize("name", [name for name in SETTINGS if not name.startswith("zb_2p")])
def test_a_step_lasts_what_the_tests_own_player_says(name: str) -> None:
    chance, schedule = random.Random(name), schedule_of(name)
    shapes = [one for one in product((2, 3, 4), (1, 2), (2, 4, 8)) if not schedule.problems(*one)]
    for shape in shapes:
        drawn = [chance.randint(1, 9) for _ in range(3)]
        times = Times(*drawn, message=chance.randint(0, 4))
        tables = tables_of(schedule.chunk_map(*shape[:2]), shape[2], times)
        order = order_of(tables, words_of(schedule, shape))
        assert order.ns == play(schedule, shape, times).length
        assert least_ns(tables, pairs=schedule.pairs) <= order.ns


def halves(microbatches: int, chunk: int) -> Iterator[tuple[Turn, ...]]:
    """Every order of a stage with one chunk, backwards in halves."""

    def grown(word: tuple[Any, ...], left: tuple[int, ...]) -> Iterator[tuple[Turn, ...]]:
        if not any(left):
            yield word
        for place, kind in enumerate("FIW"):
            if left[place] and (place == 0 or left[place] > left[place - 1]):
                fewer = tuple(one - (at == place) for at, one in enumerate(left))
                yield from grown((*word, ((kind, chunk),)), fewer)

    yield from grown((), (microbatches,) * 3)


def whole(word: tuple[Turn, ...]) -> Iterator[tuple[Turn, ...]]:
    """The order with any of its halves that stand side by side made whole."""
    for place in range(len(word) - 1):
        (kind, chunk), (after, other) = word[place][0], word[place + 1][0]
        if (kind, after) == ("I", "W") and chunk == other:
            yield from whole((*word[:place], (("B", chunk),), *word[place + 2 :]))
    yield word


def shortest(tables: Tables, stages: int) -> int:
    """Of all orders within the memory."""
    each = [
        [one for word in halves(tables.microbatches, stage) for one in dict.fromkeys(whole(word))]
        for stage in range(stages)
    ]
    fit = [
        [word for word in words if _fits(tables, stage, word)] for stage, words in enumerate(each)
    ]
    orders = (order_of(tables, words) for words in product(*fit))
    return min(order.ns for order in orders)


def _fits(tables: Tables, stage: int, word: tuple[Turn, ...]) -> bool:
    order = Order(
        np.array([[code_of(turn, tables.size) for turn in word]], np.int32),
        np.array([len(word)]),
        0,
    )
    return peaks(tables, order)[0] <= tables.stages[0, stage]


@pytest.mark.parametrize(
    ("stages", "microbatches", "room"),
    [(2, 2, 9), (2, 2, 1), (2, 3, 2), (3, 2, 9), (3, 2, 2)],
)
def test_a_found_order_is_as_short_as_any(stages: int, microbatches: int, room: int) -> None:
    chance = random.Random(stages * microbatches)
    for _ in range(2):
        drawn = [chance.randint(1, 9) for _ in range(3)]
        times = Times(*drawn, message=chance.randint(0, 4))
        tables = tables_of(looped(stages, 1), microbatches, times, room=room)
        known = [words_of(schedule_of("1f1b"), (stages, 1, microbatches))]
        search = Search(tables, known, seed=1)
        search.rounds(2, 6)
        assert search.best[0].over == 0
        assert search.best[0].ns == shortest(tables, stages), times


CASES: list[tuple[str, Shape, Times, float]] = [
    ("gpipe", (4, 1, 8), Times(4, 4, 4, message=9), np.inf),
    ("1f1b", (4, 1, 8), Times(4, 4, 4), 4),
    ("interleaved_1f1b", (4, 2, 8), Times(4, 4, 4), np.inf),
    ("kimi-k2", (4, 2, 8), Times(4, 4, 4, pair=8), np.inf),
    ("zb_h1", (4, 1, 8), Times(4, 4, 4), 4),
    ("zb_h2", (4, 1, 8), Times(4, 4, 4), 7),
    ("dualpipe", (4, 1, 8), Times(4, 4, 4, pair=9), np.inf),
]
"""Each schedule where it is at its best: slow messages, little memory, several chunks, pairs that
save time, memory for twice the forwards, two copies."""


@pytest.mark.parametrize(("name", "shape", "times", "room"), CASES)
def test_no_known_schedule_is_faster_than_what_is_found(
    name: str, shape: Shape, times: Times, room: float
) -> None:
    own = schedule_of(name).chunk_map(*shape[:2])
    known = [
        one
        for one in map(schedule_of, SETTINGS)
        if not one.problems(*shape) and one.chunk_map(*shape[:2]) == own
    ]
    pairs = times.pair is not None
    tables = tables_of(own, shape[2], times, room=room)
    words = [words_of(one, shape) for one in known if pairs or not one.pairs]
    orders = [order_of(tables, one) for one in words]
    search = searched(tables, words, pairs=pairs)
    found = search.best[0]
    assert found.over == 0
    assert found.ns <= min(order.ns for order in orders if not order.over)
    assert found.ns >= least_ns(tables, pairs=pairs)
    made = custom(found.turns(tables.size), own)
    assert made.problems(*shape) == []
    assert play(made, shape, times).length == found.ns


def test_less_memory_never_helps_and_is_kept_to() -> None:
    shape, times = (4, 1, 8), Times(4, 4, 4)
    before = 0
    for room in (9, 6, 4):
        tables = tables_of(looped(4, 1), 8, times, room=room)
        found = searched(tables, [words_of(schedule_of("1f1b"), shape)]).best[0]
        assert peaks(tables, found).max() <= room
        assert found.ns >= before
        before = found.ns


def test_the_same_seed_finds_the_same() -> None:
    tables = tables_of(looped(3, 1), 6, Times(3, 4, 5, message=1))
    known = [words_of(schedule_of("1f1b"), (3, 1, 6))]
    one, other = (searched(tables, known, turns=2).best[0] for _ in range(2))
    assert one.ns == other.ns
    assert (one.words == other.words).all()


@pytest.mark.parametrize("shape", [(2, 4), (3, 8), (4, 12), (8, 32)])
def test_dualpipe_cut_in_half_has_dualpipes_bubble_of_half_the_chunks(
    shape: tuple[int, int],
) -> None:
    """DualPipe of twice the stages: (p - 1)(F&B + B - 3 W), on half of them (DualPipe, README)."""
    stages, microbatches = shape
    cut = dualpipe_v(stages, microbatches)
    assert cut.problems(stages, 2, microbatches) == []
    step = play(cut, (stages, 2, microbatches), Times(1, 1, 1, pair=3))
    assert set(step.idle) == {(stages - 1) * (3 + 2 - 3)}
