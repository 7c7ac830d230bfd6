"""The turns of a step, walked by machine code: all arrays that it knows, by their places."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twin.compiled import turns as k
from twin.compiled.machine import Code
from twin.planning.beside_turns import Beside, Copies, Lane, Numbers, Reductions

if TYPE_CHECKING:
    from twin.planning.turn_levels import Lanes, TurnLevels


def ends(
    code: Code,
    step: TurnLevels,
    durations: Numbers,
    message: tuple[int, int, int],
    besides: Sequence[Beside],
    lanes: Lanes | None,
) -> tuple[Numbers, Numbers]:
    """As `TurnLevels.ends` says."""
    turns, splits = len(step.kind), durations.shape[1]
    empty = np.zeros(0, np.int64)
    tables: list[Numbers] = [empty] * k.TABLES
    done, begun, free, early = (
        np.zeros(shape, np.int64) for shape in 2 * [(turns, splits)] + 2 * [(1, splits)]
    )
    there = np.zeros((2 * turns, splits), np.int64) if lanes else done
    sending, delay, gathering = message
    gone, delay = (there.copy(), delay - sending) if sending else (there, delay)
    gone[0] = -delay
    forward, backward = step.last_with if besides else (step.before, step.before)
    pairs = (lanes.begins, *lanes.results) if lanes else (empty,) * 3
    tables[: k.LASTS] = (
        *(step.kind, step.before, forward, backward, step.sources[0], step.sources[-1]),
        *(sending * step.sends, gathering * step.takes),
    )
    tables[k.LASTS : k.LINKS] = (durations, *pairs)
    tables[k.DONE : k.REDUCED] = done, there, gone, begun
    tables[k.FREE], tables[k.EARLY] = free, early
    state = tables[k.STATE] = np.zeros(k.STATES, np.int64)
    state[: k.REDUCES] = (
        turns,
        splits,
        delay,
        sending,
        len(step.sources),
        lanes is not None,
        gathering > 0,
    )
    for one in besides:
        one.begin((turns, splits))
        _join(one, tables, state)
    tables = [np.ascontiguousarray(one, np.int64) for one in tables]
    addresses = (ctypes.c_void_p * len(tables))(*[one.ctypes.data for one in tables])
    code.walk(None, addresses, None)
    return done, there


def _join(one: Any, tables: list[Numbers], state: Numbers) -> None:
    """Put what works beside kernels into its places."""
    if isinstance(one, Reductions):
        tables[k.LINKS : k.HOST] = one.links, one.left, one.halved
        tables[k.REDUCED], state[k.REDUCES] = one.reduced, True
    elif isinstance(one, Copies):
        tables[k.OUT], tables[k.COMES] = one.out, one.back
        ways = (one.forwards, one.backwards)
        tables[k.FORWARDS : k.DONE] = (way.astype(np.int64) for way in ways)
        tables[k.COPY_GONE : k.FREE] = one.gone, one.last, one.came
        state[k.COPIED] = True
    elif isinstance(one, Lane) and one.turns_ahead == 1:
        tables[k.HOST], tables[k.HOST_WORKED], state[k.HOSTED] = one.times, one.worked, True
    elif isinstance(one, Lane):
        tables[k.SOCKET], tables[k.SOCKET_WORKED] = one.times, one.worked
        tables[k.SOCKET_BEGINS], state[k.SOCKETED] = one.begins, True
