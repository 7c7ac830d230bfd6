"""Streaming multiprocessors as a shared resource: a communication kernel holds some while it runs,
and the kernel that computes has to do with the rest.

Each role has one compute stream, so at most one kernel at a time; its pace changes when
communication starts or ends on the role. How much slower it runs is `twin.hardware.roofline`'s to
say. Copy engines hold no SMs. Messages between stages hold about two of 132 for a part of the time
(NCCL, 2 per peer), which is left out: 0.6 % of Kimi K2's step on 2,048 H800.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from twin.engine.fluid import ROUNDING
from twin.engine.program import Program
from twin.hardware.roofline import slowdown

if TYPE_CHECKING:  # simpy is the readable player's
    from twin.engine.clock import Clock

MOST_HELD: Final = 0.5
"""Share of the SMs that communication kernels get at most, together: beyond it they would wait."""


@dataclass(slots=True)
class _Kernel:
    """A running compute operation: how much of its time SMs bound, nanoseconds of work left at full
    speed since `since`, and how many times as long they take. `end` is when it is done at the
    present pace, `due` when the timer goes off that looks after it."""

    op: int
    role: int
    bound: float
    left: float
    since: int
    stretch: float = 1.0
    end: int = -1
    due: int = -1


class Multiprocessors:
    """The SMs of all roles. `over` is called with a compute operation when it is done."""

    def __init__(self, clock: Clock, program: Program, over: Callable[[int], None]) -> None:
        self.clock, self.over = clock, over
        self.sms, self.contentions = program.sms, program.contentions
        self.held = [0] * len(program.roles)
        self.running: list[_Kernel | None] = [None] * len(program.roles)
        self.stretches: dict[tuple[float, int, float], float] = {}
        self.shared = False
        """True once a kernel has run beside communication."""

    def compute(self, op: int, role: int, duration: int, bound: float) -> None:
        """Start a compute operation of so many nanoseconds at full speed."""
        now = self.clock.nanoseconds
        kernel = self.running[role] = _Kernel(op, role, bound, duration, now)
        if self.held[role]:
            self._pace(kernel, now)
        else:
            kernel.end = kernel.due = now + duration
            self.clock.call(duration, self._ended, (kernel, kernel.end))

    def hold(self, role: int, sms: int) -> None:
        """Communication on a role takes so many more SMs, or gives them back."""
        self.held[role] += sms
        kernel = self.running[role]
        if kernel is not None:
            now = self.clock.nanoseconds
            kernel.left -= (now - kernel.since) / kernel.stretch
            kernel.since = now
            self._pace(kernel, now)

    def _pace(self, kernel: _Kernel, now: int) -> None:
        """Set the pace of a kernel, and when it ends."""
        held = self.held[kernel.role]
        kernel.stretch = self._stretch(kernel, held) if held else 1.0
        kernel.end = now + max(0, ceil(kernel.left * kernel.stretch - ROUNDING))
        if kernel.due < now or kernel.end < kernel.due:
            kernel.due = kernel.end
            self.clock.call(kernel.end - now, self._ended, (kernel, kernel.end))

    def _stretch(self, kernel: _Kernel, held: int) -> float:
        self.shared = True
        bound, contention = kernel.bound, self.contentions[kernel.role]
        key = bound, held, contention
        if key not in self.stretches:
            held = min(held, most_held(self.sms))
            self.stretches[key] = slowdown(bound, held, self.sms, contention)
        return self.stretches[key]

    def _ended(self, timer: tuple[_Kernel, int]) -> None:
        kernel, due = timer
        if kernel.due != due:
            return  # an earlier timer has taken over
        if kernel.end > due:  # it has become slower since
            kernel.due = kernel.end
            self.clock.call(kernel.end - due, self._ended, (kernel, kernel.end))
            return
        kernel.due = -1  # for a second timer of this instant
        self.running[kernel.role] = None
        self.over(kernel.op)


def most_held(sms: int) -> int:
    """Of so many SMs, those that communication kernels get at most."""
    return max(1, int(MOST_HELD * sms))
