# pyright: basic
"""Orders run and changed, in loops over arrays: compiled by numba, and plain Python without it.

A word is what one stage runs, turn by turn, as codes (`twin.explore.schedules.tables`). Each pass
takes the next micro-batch of its chunk. A turn begins when the one before it on its stage has ended
and what its passes take has arrived. Gradients of a chunk are reduced behind its last backward. So
a step is the longest path through its turns; shared links and SMs are left out.

The search changes one word at a time and keeps the change where the step gets no longer, or a
little longer with a chance that falls (simulated annealing: Kirkpatrick et al. 1983, Science 220).
No order is kept that needs more memory than the one before it and than a stage has.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.explore.schedules.tables import (
    AFTER,
    BACKWARD,
    BACKWARD_LAG,
    BACKWARD_MESSAGE,
    BACKWARD_RESULT,
    BEFORE,
    CLOSES,
    DURING,
    FORWARD,
    FORWARD_LAG,
    FORWARD_MESSAGE,
    FORWARD_RESULT,
    LASTS,
    LEAVES,
    REDUCES,
    ROOM,
    SPLIT,
    STAGE,
    WEIGHTS,
    Bytes,
    Numbers,
    Tables,
)

Codes: TypeAlias = NDArray[np.int32]

NEVER = 1 << 60
"""Nanoseconds of an order that does not end."""


AHEAD, BACK = range(2)
BEGUN, RETURNED, HALVES, ENDED = range(4)
FREE, FIRST = range(2)
HELD, FULLEST = range(2)
"""Rows of the arrays of a state."""


class State(NamedTuple):
    """A step under way."""

    results: NDArray[np.int64]
    """When results of forwards and backwards are there, by chunk and micro-batch; -1: not yet."""
    counts: Numbers
    """Of every chunk: forwards, backwards, those that wait for their weights' gradients; and the
    end of its last backward."""
    clock: Numbers
    """Of every stage: the end of its last turn, and the start of its first."""
    memory: Bytes
    """Of every stage: what its passes hold, and held at its fullest."""


Step: TypeAlias = tuple[State, Tables]


def beginning(tables: Tables) -> State:
    """The state before the first turn."""
    chunks, stages = tables.chunks.shape[1], tables.stages.shape[1]
    return State(
        np.full((2, chunks, tables.microbatches), -1, np.int64),
        np.zeros((4, chunks), np.int64),
        np.full((2, stages), -1, np.int64),
        np.zeros((2, stages)),
    )


def ready(code: int, stage: int, state: State, tables: Tables) -> int:
    """When a turn can begin; -1: what it takes is not there yet."""
    start = max(0, state.clock[FREE, stage])
    ahead = tables.codes[FORWARD, code]
    if ahead >= 0 and tables.chunks[BEFORE, ahead] >= 0:
        came = state.results[AHEAD, tables.chunks[BEFORE, ahead], state.counts[BEGUN, ahead]]
        if came < 0:
            return -1
        start = max(
            start, came + tables.chunks[FORWARD_MESSAGE, ahead] - tables.codes[FORWARD_LAG, code]
        )
    back = tables.codes[BACKWARD, code]
    if back >= 0:
        number = state.counts[RETURNED, back]
        if state.counts[BEGUN, back] <= number:
            return -1
        if tables.chunks[AFTER, back] >= 0:
            came = state.results[BACK, tables.chunks[AFTER, back], number]
            if came < 0:
                return -1
            start = max(
                start,
                came + tables.chunks[BACKWARD_MESSAGE, back] - tables.codes[BACKWARD_LAG, code],
            )
    late = tables.codes[WEIGHTS, code]
    if late >= 0 and state.counts[HALVES, late] <= 0:
        return -1
    return start


def run(code: int, stage: int, start: int, state: State, tables: Tables) -> None:
    """Run a turn."""
    ahead, back, late = (
        tables.codes[FORWARD, code],
        tables.codes[BACKWARD, code],
        tables.codes[WEIGHTS, code],
    )
    end = start + tables.codes[LASTS, code]
    if state.clock[FIRST, stage] < 0:
        state.clock[FIRST, stage] = start
    if ahead >= 0:
        state.results[AHEAD, ahead, state.counts[BEGUN, ahead]] = (
            start + tables.codes[FORWARD_RESULT, code]
        )
        state.counts[BEGUN, ahead] += 1
    if back >= 0:
        state.results[BACK, back, state.counts[RETURNED, back]] = (
            start + tables.codes[BACKWARD_RESULT, code]
        )
        state.counts[RETURNED, back] += 1
        if tables.codes[SPLIT, code]:
            state.counts[HALVES, back] += 1
        else:
            state.counts[ENDED, back] = end
    if late >= 0:
        state.counts[HALVES, late] -= 1
        state.counts[ENDED, late] = end
    state.clock[FREE, stage] = end
    state.memory[FULLEST, stage] = max(
        state.memory[FULLEST, stage], state.memory[HELD, stage] + tables.held[DURING, code]
    )
    state.memory[HELD, stage] += tables.held[LEAVES, code]


def play(words: Codes, lengths: Numbers, tables: Tables) -> tuple[int, float]:
    """Nanoseconds of a step, and by how many bytes stages are over their memory, all together."""
    state = beginning(tables)
    at = np.zeros(len(lengths), np.int64)
    moved = True
    while moved:
        moved = False
        for stage in range(len(lengths)):
            while at[stage] < lengths[stage]:
                code = words[stage, at[stage]]
                start = ready(code, stage, state, tables)
                if start < 0:
                    break
                run(code, stage, start, state, tables)
                at[stage] += 1
                moved = True
    for stage in range(len(lengths)):
        if at[stage] < lengths[stage]:
            return NEVER, 0.0
    return closed(state, tables)


def closed(state: State, tables: Tables) -> tuple[int, float]:
    """The same of a step whose turns have ended."""
    longest, over = 0.0, 0.0
    for stage in range(state.clock.shape[1]):
        reduced = 0
        for chunk in range(tables.chunks.shape[1] - 1, -1, -1):
            if tables.chunks[STAGE, chunk] == stage:
                reduced = max(reduced, state.counts[ENDED, chunk]) + tables.chunks[REDUCES, chunk]
        end = max(state.clock[FREE, stage], reduced) + tables.stages[CLOSES, stage]
        if tables.staggered:
            end -= state.clock[FIRST, stage]
        longest = max(longest, end)
        over += max(0.0, state.memory[FULLEST, stage] - tables.stages[ROOM, stage])
    return int(longest), over


def fill(
    words: Codes, lengths: Numbers, since: Numbers, share: float, tables: Tables
) -> tuple[Codes, bool]:
    """The words with weights' gradients moved, from the turn `since` of each stage on: to where it
    waits longer than a share of one, lacks the memory for its next turn, or has nothing else left.
    And whether all of it runs."""
    state, out = beginning(tables), np.zeros_like(words)
    queue = np.zeros(words.shape, np.int32)
    # Of every stage: its next turn, those that are put, where its queue begins and ends, `since`.
    marks = np.zeros((len(lengths), 5), np.int64)
    marks[:, 4] = since
    moved = True
    while moved:
        moved = False
        for stage in range(len(lengths)):
            word = words[stage, : lengths[stage]]
            while put_next(word, stage, share, (queue, out, marks), (state, tables)):
                moved = True
    return out, bool((marks[:, 1] == lengths).all())


def put_next(
    word: Codes, stage: int, share: float, made: tuple[Codes, Codes, Numbers], step: Step
) -> bool:
    """Run the next turn of a stage, or a weights' gradient before it; whether any could."""
    state, tables = step
    queue, out, marks = made
    mark, late = marks[stage], queue[stage]
    floats = mark[0] >= mark[4]
    while floats and mark[0] < len(word) and tables.codes[WEIGHTS, word[mark[0]]] >= 0:
        mark[0] += 1
    code, start, own = 0, max(0, state.clock[FREE, stage]), 0
    over = mark[0] >= len(word)
    if not over:
        code = int(word[mark[0]])
        start = ready(code, stage, state, tables)
        if start < 0:
            return False
    if mark[2] < mark[3] and floats:
        own = int(late[mark[2]])
        gap = start - max(0, state.clock[FREE, stage])
        room = state.memory[HELD, stage] + tables.held[DURING, code] <= tables.stages[ROOM, stage]
        if not over and room and gap < share * tables.codes[LASTS, own]:
            own = 0
    if own > 0:
        code, start = own, max(0, state.clock[FREE, stage])
    elif over:
        return False
    else:
        mark[0] += 1
    run(code, stage, start, state, tables)
    out[stage, mark[1]] = code
    mark[1] += 1
    wait_for_weights(code, mark, late, tables)
    return True


def wait_for_weights(code: int, mark: Numbers, late: Codes, tables: Tables) -> None:
    """Put what a turn leaves for later into its stage's queue, and take out what it did."""
    if tables.codes[WEIGHTS, code] >= 0:
        place = mark[2]
        while late[place] != code:
            place += 1
        for one in range(place, mark[2], -1):
            late[one] = late[one - 1]
        mark[2] += 1
    if tables.codes[SPLIT, code]:
        late[mark[3]] = 3 * tables.chunks.shape[1] + tables.codes[BACKWARD, code]
        mark[3] += 1


def build(
    forwards: Codes, backwards: Codes, warm: Numbers, late: Numbers, tables: Tables, ways: Numbers
) -> tuple[Codes, Numbers]:
    """Words of so many warm-up forwards, then a forward and a backward in turn, or as a pair, then
    the backwards that are left; in halves the weights' come so many backwards late. Forwards and
    backwards are chunks in order, `ways` whether in halves, and whether in pairs. And their
    lengths."""
    stages, count = forwards.shape
    chunks = tables.chunks.shape[1]
    halves, pairs = ways
    lengths = np.zeros(stages, np.int64)
    out = np.zeros((stages, 3 * count + 4), np.int32)
    for stage in range(stages):
        ahead = min(warm[stage], count)
        out[stage, :ahead] = forwards[stage, :ahead]
        put, weights = ahead, 0
        for place in range(count):
            back = backwards[stage, place]
            code = (1 + halves) * chunks + back
            if ahead < count:
                chunk = forwards[stage, ahead]
                ahead += 1
                if pairs:
                    code = 4 * chunks + 2 * (chunk * chunks + back) + halves
                else:
                    out[stage, put] = chunk
                    put += 1
            out[stage, put] = code
            put += 1
            if halves and place >= late[stage]:
                out[stage, put] = 3 * chunks + backwards[stage, weights]
                weights += 1
                put += 1
        while halves and weights < count:
            out[stage, put] = 3 * chunks + backwards[stage, weights]
            weights += 1
            put += 1
        lengths[stage] = put
    return out, lengths


def split_last(
    words: Codes, lengths: Numbers, counts: Numbers, tables: Tables
) -> tuple[Codes, Numbers, Numbers]:
    """The words with so many last backwards of each stage in halves, the weights' right behind;
    their lengths, and the turn of each stage from which on they are."""
    chunks = tables.chunks.shape[1]
    grown, since, out = lengths.copy(), lengths.copy(), np.zeros_like(words)
    for stage in range(len(lengths)):
        left = counts[stage]
        while since[stage] > 0 and left > 0:
            since[stage] -= 1
            left -= tables.codes[BACKWARD, words[stage, since[stage]]] >= 0
        put = since[stage]
        out[stage, :put] = words[stage, :put]
        for place in range(since[stage], lengths[stage]):
            code = words[stage, place]
            back = tables.codes[BACKWARD, code]
            whole = back >= 0 and not tables.codes[SPLIT, code]
            out[stage, put] = halved(code, chunks, tables) if whole else code
            put += 1
            if whole:
                out[stage, put] = 3 * chunks + back
                put += 1
        grown[stage] = put
    return out, grown, since


def halved(code: int, chunks: int, tables: Tables) -> int:
    """A turn whose whole backward becomes that for the input."""
    return code + 1 if tables.codes[FORWARD, code] >= 0 else code + chunks


def changed(word: Codes, span: Numbers, tables: Tables, pairs: bool, chance: Numbers) -> bool:
    """Change a word in one place. `span` is its length, and where the turns begin and end that
    stay. Whether anything changed."""
    length, low, high = span
    outside = low + length - high
    if outside < 2:
        return False
    here = drawn(chance, outside)
    front = here < low
    if not front:
        here += high - low
    begin, end = (0, low) if front else (high, length)
    kind = drawn(chance, 10)
    if kind < 6:
        return shift(word, here, begin, end, chance)
    if kind < 8:
        return halve(word, span, here, end, tables, chance)
    return pairs and couple(word, span, here, end, tables, chance)


def halve(word: Codes, span: Numbers, here: int, end: int, tables: Tables, chance: Numbers) -> bool:
    """Make halves of a whole backward, or a whole of halves."""
    chunks, code = tables.chunks.shape[1], word[here]
    back = tables.codes[BACKWARD, code]
    if back < 0:
        return False
    if tables.codes[SPLIT, code]:
        return join(word, span, here, end, tables)
    there = here + 1 + int((end - here - 1) * share(chance) ** 2)
    word[here] = halved(code, chunks, tables)
    insert(word, span, there, 3 * chunks + back, here < span[1])
    return True


def drawn(chance: Numbers, most: int) -> int:
    """A number below `most` (Park and Miller 1988, CACM 31(10), with the factor of 1993)."""
    chance[0] = chance[0] * 48271 % 2147483647
    return chance[0] % most


def share(chance: Numbers) -> float:
    """A number from 0 to 1."""
    return drawn(chance, 1 << 30) / (1 << 30)


def shift(word: Codes, here: int, begin: int, end: int, chance: Numbers) -> bool:
    """Move a turn to another place, mostly near."""
    code = word[here]
    reach = 1 + int((end - begin) * share(chance) ** 4)
    there = min(max(here + drawn(chance, 2 * reach + 1) - reach, begin), end - 1)
    if there == here or word[there] == code:
        return False
    if there > here:
        for place in range(here, there):
            word[place] = word[place + 1]
    else:
        for place in range(here, there, -1):
            word[place] = word[place - 1]
    word[there] = code
    return True


def insert(word: Codes, span: Numbers, there: int, code: int, front: bool) -> None:
    """Put a turn at a place."""
    for place in range(span[0], there, -1):
        word[place] = word[place - 1]
    word[there] = code
    span[0] += 1
    span[1:] += front


def remove(word: Codes, span: Numbers, there: int, front: bool) -> None:
    """Take a turn away."""
    for place in range(there, span[0] - 1):
        word[place] = word[place + 1]
    span[0] -= 1
    span[1:] -= front


def join(word: Codes, span: Numbers, here: int, end: int, tables: Tables) -> bool:
    """Make a backward whole whose weights' half comes before the turns that stay."""
    chunks, code = tables.chunks.shape[1], word[here]
    back, number = tables.codes[BACKWARD, code], 0
    for place in range(here):
        number += (
            tables.codes[BACKWARD, word[place]] == back and tables.codes[SPLIT, word[place]] > 0
        )
    for place in range(end):
        if tables.codes[WEIGHTS, word[place]] == back:
            if number == 0:
                if place < here:
                    return False
                word[here] = code - 1 if tables.codes[FORWARD, code] >= 0 else code - chunks
                remove(word, span, place, here < span[1])
                return True
            number -= 1
    return False


def couple(
    word: Codes, span: Numbers, here: int, end: int, tables: Tables, chance: Numbers
) -> bool:
    """Make a pair of a forward and a backward, or two turns of a pair."""
    one, chunks, front = word[here], tables.chunks.shape[1], here < span[1]
    ahead, back = tables.codes[FORWARD, one], tables.codes[BACKWARD, one]
    if ahead >= 0 and back >= 0:
        alone = (1 + tables.codes[SPLIT, one]) * chunks + back
        turned = drawn(chance, 2) > 0
        word[here] = alone if turned else ahead
        insert(word, span, here + 1, ahead if turned else alone, front)
        return True
    other = word[here + 1] if here + 1 < end else one
    ahead = max(ahead, tables.codes[FORWARD, other])
    beside = max(back, tables.codes[BACKWARD, other])
    single = one < 4 * chunks and other < 4 * chunks
    if not single or ahead < 0 or beside < 0:
        return False
    split = max(tables.codes[SPLIT, one], tables.codes[SPLIT, other])
    word[here] = 4 * chunks + 2 * (ahead * chunks + beside) + split
    remove(word, span, here + 1, front)
    return True


def anneal(
    words: Codes,
    spans: Numbers,
    tables: Tables,
    pairs: bool,
    chance: Numbers,
    settings: tuple[int, float, float],
) -> None:
    """Change words for so many rounds; they become the best that was met. `spans` are as in
    `changed`; `settings` the rounds, and the first and the last temperature as shares of a step."""
    rounds, warm, cold = settings
    now, over = play(words, spans[:, 0].copy(), tables)
    best, least, inner = now, words.copy(), spans.copy()
    for turn in range(rounds):
        stage = drawn(chance, len(spans))
        if spans[stage, 0] + 2 > words.shape[1]:
            continue
        word, span = words[stage].copy(), spans[stage].copy()
        if not changed(words[stage], spans[stage], tables, pairs, chance):
            continue
        found, more = play(words, spans[:, 0].copy(), tables)
        heat = now * warm * (cold / warm) ** (turn / rounds) + 1e-9
        if (
            found < NEVER
            and more <= over
            and (found <= now or share(chance) < np.exp((now - found) / heat))
        ):
            now, over = found, more
            if now < best:
                best = now
                least[:] = words
                inner[:] = spans
            continue
        words[stage] = word
        spans[stage] = span
    words[:] = least
    spans[:] = inner
