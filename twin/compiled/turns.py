"""The turns of a schedule as loops over arrays, of many splits at once: what `twin.compiled.build`
compiles.

It does what `twin.planning.turn_levels` and `beside_turns` say, in the same whole numbers. Tables
are those of `twin.compiled.player`; only the one of 64-bit integers is used. The names below are
places in it. Of arrays by turn, or kind of turn, and split, the columns of a row are splits.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Final, TypeAlias

Integers: TypeAlias = Sequence[MutableSequence[int]]

# By turn: its kind; the turns before it, and those with a forward or a backward; whose results it
# takes. By kind: how often it has the port for a message, and how long it gathers.
KIND, BEFORE, LAST_FORWARD, LAST_BACKWARD, FIRST, SECOND, SENDS, TAKES = range(8)
# By kind: of pairs, and of what works beside kernels.
LASTS, BEGINS, RESULTS, BACK_RESULTS, LINKS, LEFT, HALVED, HOST = range(8, 16)
OUT, COMES, SOCKET, FORWARDS, BACKWARDS = range(16, 21)
# By turn: what is found.
DONE, THERE, GONE, BEGUN, REDUCED = range(21, 26)
HOST_WORKED, SOCKET_WORKED, SOCKET_BEGINS, COPY_GONE, COPY_LAST, COPY_CAME = range(26, 32)
# Of one turn, by split.
FREE, EARLY = range(32, 34)
STATE: Final = 34
TABLES: Final = 35
# In `w[STATE]`: sizes, the time of a message, and what there is.
TURNS, SPLITS, DELAY, SENDING, SOURCES, LANES, SPREAD = range(7)
REDUCES, HOSTED, COPIED, SOCKETED = range(7, 11)
STATES: Final = 11


def arrive(w: Integers, turn: int) -> None:
    """When a turn may begin: after the one before it, and when its messages are there."""
    state, begun, early, begins = w[STATE], w[BEGUN], w[EARLY], w[BEGINS]
    done, gone, splits, delay = w[DONE], w[GONE], state[SPLITS], state[DELAY]
    kind, ahead = w[KIND][turn] * splits, state[LANES] and not state[SPREAD]
    before, own = w[BEFORE][turn] * splits, turn * splits
    first, second, gathers = w[FIRST][turn] * splits, w[SECOND][turn] * splits, w[TAKES]
    gathering = gathers[w[KIND][turn]]
    for split in range(splits):
        start = early[split] = done[before + split]
        if state[SOURCES] > 1:
            start = max(start, gone[second + split] + delay)
        arrives = gone[first + split] + delay
        if ahead:
            early[split], arrives = start, arrives - begins[kind + split]
        begun[own + split] = max(start, arrives) + gathering


def copies(w: Integers, turn: int) -> None:
    """Passes wait for copies to the host and back."""
    splits, begun, out, came = w[STATE][SPLITS], w[BEGUN], w[COPY_LAST], w[COPY_CAME]
    kind, own = w[KIND][turn], turn * w[STATE][SPLITS]
    forward, backward = w[LAST_FORWARD][turn] * splits, w[LAST_BACKWARD][turn] * splits
    comes, row = w[COMES], kind * splits
    goes, returns = w[FORWARDS][kind], w[BACKWARDS][kind]
    for split in range(splits):
        held = out[forward + split] if goes else 0
        since = max(came[backward + split], begun[backward + split]) + comes[row + split]
        came[own + split] = since
        begun[own + split] = max(begun[own + split], held, since if returns else 0)


def reduce(w: Integers, turn: int) -> None:
    """Gathers of a turn wait for links, which reductions of those before have."""
    splits, begun, done, reduced = w[STATE][SPLITS], w[BEGUN], w[DONE], w[REDUCED]
    links, left, halved, row = w[LINKS], w[LEFT], w[HALVED], w[KIND][turn] * w[STATE][SPLITS]
    before, own = w[BEFORE][turn] * splits, turn * splits
    for split in range(splits):
        start, busy = begun[own + split], reduced[before + split]
        end = done[own + split] + min(max(busy - start, 0), halved[row + split])
        done[own + split] = end
        reduced[own + split] = max(max(busy, start) + links[row + split], end + left[row + split])


def lane(w: Integers, turn: int, times: int, worked: int, since: int) -> None:
    """A turn does not end before something has worked, that may begin with an earlier turn."""
    splits, done, begun, gone = w[STATE][SPLITS], w[DONE], w[since], w[worked]
    takes, row = w[times], w[KIND][turn] * w[STATE][SPLITS]
    before, own = w[BEFORE][turn] * splits, turn * splits
    for split in range(splits):
        end = max(gone[before + split], begun[before + split]) + takes[row + split]
        gone[own + split] = end
        done[own + split] = max(done[own + split], end)


def leave(w: Integers, turn: int) -> None:
    """Forwards have something to copy to the host."""
    splits, done, gone, last, out = w[STATE][SPLITS], w[DONE], w[COPY_GONE], w[COPY_LAST], w[OUT]
    forward, own = w[LAST_FORWARD][turn] * splits, turn * splits
    row = w[KIND][turn] * splits
    for split in range(splits):
        before = last[own + split] = gone[forward + split]
        gone[own + split] = max(before, done[own + split]) + out[row + split]


def give(w: Integers, turn: int) -> None:
    """When the passes of a turn have their results."""
    state, done, there, begins = w[STATE], w[DONE], w[THERE], w[BEGINS]
    splits, first, second, lasts = state[SPLITS], w[RESULTS], w[BACK_RESULTS], w[LASTS]
    free, early, row = w[FREE], w[EARLY], w[KIND][turn] * state[SPLITS]
    own, other = turn * splits, (state[TURNS] + turn) * splits
    for split in range(splits):
        start, back = done[own + split] - lasts[row + split], second[row + split]
        there[own + split] = start + first[row + split]
        if back <= begins[row + split] and start == free[split]:
            start = early[split]
        there[other + split] = start + back


def send(w: Integers, turn: int) -> None:
    """Messages of a turn leave behind those of the turn before."""
    state, gone, there, sends = w[STATE], w[GONE], w[THERE], w[SENDS]
    splits, more = state[SPLITS], state[TURNS] * state[SPLITS] * state[LANES]
    before, own, long = w[BEFORE][turn] * splits, turn * splits, sends[w[KIND][turn]]
    for split in range(splits):
        last = max(gone[before + split], gone[before + more + split])
        gone[own + split] = max(last, there[own + split]) + long
        if more:
            gone[own + more + split] = max(last, there[own + more + split]) + long


def begin(w: Integers, turn: int) -> None:
    """A turn begins, and lasts what it lasts."""
    state, begun, done, lasts = w[STATE], w[BEGUN], w[DONE], w[LASTS]
    free, early, since, splits = w[FREE], w[EARLY], w[SOCKET_BEGINS], w[STATE][SPLITS]
    row, own, before = w[KIND][turn] * splits, turn * splits, w[BEFORE][turn] * splits
    arrive(w, turn)
    for split in range(splits):
        free[split] = begun[own + split]
        if state[SPREAD]:
            early[split] = free[split]
    if state[COPIED]:
        copies(w, turn)
    for split in range(splits):
        done[own + split] = begun[own + split] + lasts[row + split]
        if state[SOCKETED]:
            since[own + split] = begun[before + split]


def walk(n: Integers, w: Integers, x: Integers) -> int:  # noqa: ARG001  the tables of all kernels
    """Walk all turns, which come behind what they wait for."""
    state = w[STATE]
    for turn in range(1, state[TURNS]):
        begin(w, turn)
        if state[REDUCES]:
            reduce(w, turn)
        if state[HOSTED]:
            lane(w, turn, HOST, HOST_WORKED, BEGUN)
        if state[COPIED]:
            leave(w, turn)
        if state[SOCKETED]:
            lane(w, turn, SOCKET, SOCKET_WORKED, SOCKET_BEGINS)
        if state[LANES]:
            give(w, turn)
        if state[SENDING]:
            send(w, turn)
    return 0
