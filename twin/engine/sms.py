"""Streaming multiprocessors as a shared resource: a communication kernel holds some while it runs,
and the kernel that computes has to do with the rest.

Each role has one compute stream, so at most one kernel at a time; its pace changes when
communication starts or ends on the role. How much slower it runs is `twin.hardware.contention`'s to
say. Copy engines hold no SMs; receiving a message is not counted, only sending.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final, cast

from simpy import Event

from twin.engine.clock import Clock
from twin.engine.fluid import ROUNDING
from twin.engine.program import Program
from twin.hardware.contention import slowdown

MOST_HELD: Final = 0.5
"""Share of the SMs that communication kernels get at most, together: beyond it they would wait."""


@dataclass(slots=True)
class _Kernel:
    """A running compute operation: how much of its time SMs bound, nanoseconds of work left at full
    speed since `since`, and how many times as long they take. `timer` counts how often its end was
    set."""

    op: int
    bound: float
    left: float
    since: int
    stretch: float = 1.0
    timer: int = 0


class Multiprocessors:
    """The SMs of all roles. `over` is called with a compute operation when it is done."""

    def __init__(self, clock: Clock, program: Program, over: Callable[[int], None]) -> None:
        self.clock, self.over = clock, over
        self.sms, self.contention = program.sms, program.contention
        self.held = [0] * len(program.roles)
        self.running: list[_Kernel | None] = [None] * len(program.roles)
        self.stretches: dict[tuple[float, int], float] = {}
        self.shared = False
        """True once a kernel has run beside communication."""

    def compute(self, op: int, role: int, duration: int, bound: float) -> None:
        """Start a compute operation of so many nanoseconds at full speed."""
        kernel = _Kernel(op, bound, float(duration), self.clock.nanoseconds)
        self.running[role] = kernel
        self._pace(kernel, role)
        self._schedule(kernel, role)

    def hold(self, role: int, sms: int) -> None:
        """Communication on a role takes so many more SMs, or gives them back."""
        self.held[role] += sms
        kernel = self.running[role]
        if kernel is None:
            return
        now = self.clock.nanoseconds
        kernel.left -= (now - kernel.since) / kernel.stretch
        kernel.since = now
        self._pace(kernel, role)
        self._schedule(kernel, role)

    def _pace(self, kernel: _Kernel, role: int) -> None:
        held = self.held[role]
        if held == 0:
            kernel.stretch = 1.0
            return
        self.shared = True
        key = kernel.bound, held
        if key not in self.stretches:
            most = max(1, int(MOST_HELD * self.sms))
            self.stretches[key] = slowdown(kernel.bound, min(held, most), self.sms, self.contention)
        kernel.stretch = self.stretches[key]

    def _schedule(self, kernel: _Kernel, role: int) -> None:
        kernel.timer += 1
        delay = max(0, ceil(kernel.left * kernel.stretch - ROUNDING))
        self.clock.call(delay, self._ended, (kernel, kernel.timer, role))

    def _ended(self, event: Event) -> None:
        kernel, timer, role = cast("tuple[_Kernel, int, int]", event.value)
        if kernel.timer != timer:
            return  # its pace has changed since, and with it its end
        self.running[role] = None
        self.over(kernel.op)
