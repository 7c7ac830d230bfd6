"""A graph played by machine code: its arrays, and those of the player's state, in tables."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.compiled import player as k
from twin.compiled.machine import Code
from twin.engine.graph import Graph, row_starts
from twin.engine.played import ANNOUNCE, Played, Progress, check_all_ended
from twin.engine.program import Program
from twin.engine.sms import most_held

QUEUE: Final = 1 << 14
"""Items that the queue has room for at first."""
KNOWN: Final = 1 << 20
"""Room for sets of flows whose rates are remembered: where all stages copy to one host, many
different sets meet. What is not used of it costs no memory."""


def play(code: Code, graph: Graph, program: Program, progress: Progress | None = None) -> Played:
    """Play every operation of the graph. Raises `DeadlockError` when some never start."""
    room = QUEUE
    while True:
        tables = _Tables(graph, program, room)
        answer = _played(code, tables, progress)
        if answer == k.PLAYED:
            break
        room *= 4
    state, wide = tables.state, tables.wide
    check_all_ended(graph, wide[k.END])
    return Played(
        wide[k.READY],
        wide[k.START],
        wide[k.END],
        wide[k.RELEASED_BY],
        int(state[k.EVENTS]),
        bool(state[k.SHARED]),
    )


def _played(code: Code, tables: _Tables, progress: Progress | None) -> int:
    """Play on, and say how far it came every now and then."""
    state, addresses = tables.state, tables.addresses()
    while True:
        state[k.PAUSE] += ANNOUNCE
        answer = code.play(*addresses)
        if answer != k.PAUSED:
            return answer
        if progress is not None:
            progress(int(state[k.DONE]) / int(state[k.OPS]))


class _Tables:
    """The arrays that the kernel knows by their places. Those of the state have room for all that
    can ever be in them; what is not used of them costs no memory."""

    def __init__(self, graph: Graph, program: Program, room: int) -> None:
        self.graph, self.program = graph, program
        self.narrow: list[NDArray[np.int32]] = [np.zeros(0, np.int32)] * k.INTEGERS
        self.wide: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * k.LONGS
        self.floats: list[NDArray[np.float64]] = [np.zeros(0, np.float64)] * k.FLOATS
        self.state = self.wide[k.STATE] = np.zeros(k.STATES, np.int64)
        self._operations()
        self._links()
        self._kernels()
        for place in (k.QUEUE_TIME, k.QUEUE_ORDER, k.QUEUE_ITEM):
            self.wide[place] = np.empty(room, np.int64)
        self.state[k.QUEUE_SIZE] = room

    def addresses(self) -> tuple[Any, Any, Any]:
        """The three tables as the kernel takes them."""
        narrow, wide, floats = (
            (ctypes.c_void_p * len(table))(*[one.ctypes.data for one in table])
            for table in (self.narrow, self.wide, self.floats)
        )
        return narrow, wide, floats

    def _operations(self) -> None:
        graph, narrow, wide, size = self.graph, self.narrow, self.wide, len(self.graph)
        narrow[k.ROLE], narrow[k.STREAM], narrow[k.SMS] = graph.role, graph.stream, graph.sms
        narrow[k.BUNDLE], narrow[k.GROUP] = graph.bundle, graph.group
        narrow[k.WAITS] = graph.waits.copy()
        narrow[k.AFTER], wide[k.FIRST_AFTER] = graph.after.items, graph.after.first
        narrow[k.MEMBER], wide[k.FIRST_MEMBER] = graph.members.items, graph.members.first
        narrow[k.ABSENT] = np.diff(graph.members.first).astype(np.int32)
        narrow[k.RUNNING] = narrow[k.ABSENT].copy()
        narrow[k.LEFT], narrow[k.FINISHED] = np.empty(size, np.int32), np.empty(size, np.int32)
        wide[k.DURATION], self.floats[k.SM_BOUND] = graph.duration, graph.sm_bound
        for place in (k.READY, k.START, k.END, k.RELEASED_BY):
            wide[place] = np.full(size, -1, np.int64)
        self.state[k.OPS], self.state[k.CROWDED] = size, bool(graph.sms.any())

    def _links(self) -> None:
        narrow, wide, floats, bundles = self.narrow, self.wide, self.floats, self.graph.bundles
        flows = [flow for bundle in bundles.flows for flow in bundle]
        wide[k.FIRST_FLOW] = row_starts([len(bundle) for bundle in bundles.flows])
        narrow[k.PATH] = np.array([path for _, path in flows], np.int32)
        floats[k.BYTES] = np.array([size for size, _ in flows], np.float64)
        wide[k.FIRST_CROSSING] = row_starts([len(links) for links, _ in bundles.paths])
        narrow[k.LINK] = np.array([link for links, _ in bundles.paths for link in links], np.int32)
        floats[k.WEIGHT] = np.array([one for _, weights in bundles.paths for one in weights])
        floats[k.CAPACITY] = np.array(self.program.wiring.capacity, np.float64)
        floats[k.ALONE] = self._alone()
        links, paths = len(self.program.wiring.capacity), len(bundles.paths)
        for place in (k.USERS, k.HEAD, k.TAIL, k.TOUCHED, k.FIRST_USER, k.CROSSINGS, k.UNFIXED):
            narrow[place] = np.zeros(links, np.int32)
        wide[k.LINK_SEEN] = np.zeros(links, np.int64)
        floats[k.UNUSED], floats[k.PATH_RATE] = np.empty(links), np.empty(paths)
        counts = np.diff(wide[k.FIRST_FLOW])
        sends = self.graph.bundle[self.graph.bundle >= 0]
        self._flows(int(counts[sends].sum()), int(np.diff(wide[k.FIRST_CROSSING]).max(initial=0)))

    def _alone(self) -> NDArray[np.float64]:
        """The rate of a flow that has a path to itself."""
        shares = self.floats[k.CAPACITY][self.narrow[k.LINK]] / self.floats[k.WEIGHT]
        return (
            np.minimum.reduceat(shares, self.wide[k.FIRST_CROSSING][:-1]) if len(shares) else shares
        )

    def _flows(self, slots: int, longest: int) -> None:
        narrow, wide, floats = self.narrow, self.wide, self.floats
        for place in (k.SLOT_PATH, k.FREED, k.FOUND, k.SORTED):
            narrow[place] = np.empty(slots, np.int32)
        for place in (k.NEXT, k.BEFORE, k.USER, k.USER_CROSSING):
            narrow[place] = np.empty(slots * longest, np.int32)
        narrow[k.SLOT_TURN], wide[k.SLOT_SEEN] = (
            np.zeros(slots, np.int32),
            np.zeros(slots, np.int64),
        )
        for place in (k.SLOT_OP, k.SLOT_UPDATED, k.SLOT_END, k.SLOT_DUE):
            wide[place] = np.empty(slots, np.int64)
        for place in (k.SLOT_REMAINING, k.SLOT_RATE, k.RATE):
            floats[place] = np.empty(slots)
        self.state[k.LONGEST] = longest
        # No set has fewer than two paths, so the pool is full before the table is.
        wide[k.KNOWN] = np.zeros(KNOWN, np.int64)
        narrow[k.KNOWN_PATH], floats[k.KNOWN_RATE] = np.empty(KNOWN, np.int32), np.empty(KNOWN)
        self.state[k.KNOWN_SIZE] = self.state[k.POOL_SIZE] = KNOWN

    def _kernels(self) -> None:
        program, roles = self.program, len(self.program.roles)
        self.wide[k.HELD], self.wide[k.KERNEL_OP] = np.zeros(roles, np.int64), np.full(roles, -1)
        for place in (k.KERNEL_SINCE, k.KERNEL_END, k.KERNEL_DUE):
            self.wide[place] = np.empty(roles, np.int64)
        for place in (k.KERNEL_LEFT, k.KERNEL_STRETCH):
            self.floats[place] = np.empty(roles)
        self.floats[k.CONTENTION] = np.array(program.contentions, np.float64)
        self.state[k.ALL_SMS], self.state[k.MOST_SMS] = program.sms, most_held(program.sms)
