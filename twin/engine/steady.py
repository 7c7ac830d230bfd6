"""The steady state: prove that a played step repeats, so that a longer one need not be played.

In the middle of a pipelined step every stage runs the same actions again for later micro-batches.
When all operations of all stages, over more periods than any dependency reaches back, start and end
exactly one period later than their predecessors one period before, then the next period can only do
the same: the times of a max-plus system depend on nothing else (Baccelli et al., Synchronization
and Linearity, section 3.7). A step with n more periods is then n periods longer. With shared links
the rates of flows belong to the state too; they are the same because the flows' times are, up to
float rounding, which is why the proof then grants a tolerance that keeps the whole extrapolation
within a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.engine.played import Played
from twin.engine.program import Program
from twin.planning.columns import Columns, columns_of

Marks: TypeAlias = Sequence[NDArray[np.int64]]
"""Per role: the first operation of each action, in order, and one past the last."""

ROUNDING_NS = 2
"""By how much a repetition may be off when flows shared links: float rounding of their rates."""
LARGEST_ERROR_NS = 1000
"""Largest error that such rounding may add up to over a whole step."""
SETTLING = 1.5
"""Times settle late where cycles are long or transfers share links: how many times as much to play
at once. Where ranks are told apart playing is dear, so that less is tried first."""
WORTH_PLAYING = 0.6
"""Share of the step beyond which playing a part to prove the rest saves too little."""


@dataclass(frozen=True, slots=True)
class Period:
    """A proven repetition: every `microbatches` micro-batches take `length_ns` more, on all roles.
    `windows` holds one period of each role: start (ns); it ends `length_ns` later."""

    microbatches: int
    length_ns: int
    windows: tuple[int, ...]


def enough_microbatches(program: Program) -> int | None:
    """The fewest micro-batches in whose step the steady state is likely to be proven; None when the
    schedule never repeats or a full run is not much longer."""
    period = _period(program, program.microbatches)
    if period is None:
        return None
    enough = _warmup(program) + period * (_reach(program, period) + _margin(program, period) + 2)
    if len(program.roles) == program.stages:
        enough *= SETTLING
    return worth_playing(program, period * ceil(enough / period))


def worth_playing(program: Program, microbatches: int) -> int | None:
    """The same number, with the whole step's remainder of periods; None when it is too many."""
    period = _period(program, program.microbatches)
    if period is None:
        return None
    microbatches += (program.microbatches - microbatches) % period
    return microbatches if microbatches <= WORTH_PLAYING * program.microbatches else None


def prove(
    marks: Marks, played: Played, program: Program, played_microbatches: int
) -> Period | None:
    """The period of a played step, or None when it does not (yet) repeat. The times may need
    several periods of the action pattern to come round: the cyclicity of the critical circuit, at
    most as many as there are stages where no link is shared. Transfers that meet may take more."""
    pattern = _period(program, program.microbatches)
    if pattern is None or pattern != _period(program, played_microbatches):
        return None
    shape = program.stages, program.chunks_per_stage, played_microbatches
    # A frozen section has a hash, which pyright does not see.
    orders = columns_of(program.schedule, *shape)  # pyright: ignore[reportArgumentType]
    reach, margin = _reach(program, pattern) * pattern, _margin(program, pattern) * pattern
    repeats = (program.microbatches - played_microbatches) // pattern
    tolerance = ROUNDING_NS if played.shared and ROUNDING_NS * repeats <= LARGEST_ERROR_NS else 0
    proof = _Proof(marks, played, orders, _forwards(orders), played_microbatches, reach, margin)
    for period in proof.candidates(program, pattern, tolerance):
        length = proof.length(program, period, tolerance)
        if length is not None:
            windows = tuple(
                proof.window(i, role.stage, period) for i, role in enumerate(program.roles)
            )
            return Period(period, length, windows)
    return None


@dataclass(frozen=True, slots=True)
class _Proof:
    """Compare the last steady operations of every role with those some micro-batches before."""

    marks: Marks
    played: Played
    orders: Sequence[Columns]
    forwards: Sequence[NDArray[np.intp]]
    """Of each stage, their places in its order."""
    microbatches: int
    """Played."""
    reach: int
    """Micro-batches over which all must match."""
    margin: int
    """Micro-batches before each role's last forward that are not looked at: other roles already
    drain."""

    def candidates(self, program: Program, pattern: int, tolerance: int) -> Iterator[int]:
        """Multiples of the pattern's period after which the forwards of all roles start again,
        equally much later."""
        starts = np.stack(
            [
                self.played.start[marks[self.forwards[role.stage]]]
                for marks, role in zip(self.marks, program.roles, strict=True)
            ]
        )
        each = starts.shape[1] // self.microbatches
        end = starts.shape[1] - 1 - self.margin * each
        begin = end - self.reach * each
        if each == 0:
            return
        for period in range(pattern, begin // each + 1, pattern):
            back = period * each
            last = starts[:, end] - starts[:, end - back]
            if np.ptp(last) <= 2 * tolerance:
                apart = starts[:, begin:end] - starts[:, begin - back : end - back]
                if np.abs(apart - last[0]).max() <= 2 * tolerance:
                    yield period

    def length(self, program: Program, period: int, tolerance: int) -> int | None:
        """The common length (ns) of the candidate period; None when some operation does not
        repeat."""
        length: int | None = None
        for index, role in enumerate(program.roles):
            begin, end, width = self._span(role.stage, period)
            order, marks = self.orders[role.stage], self.marks[index]
            if begin < width or not _same_pattern(order, (begin, end), width, period):
                return None
            if length is None:
                start = self.played.start
                length = int(start[marks[end - 1]] - start[marks[end - 1 - width]])
            back = int(marks[end] - marks[end - width])
            # The first passes of a step may have other operations, such as gathers.
            if (marks[begin : end + 1] - marks[begin - width : end + 1 - width] != back).any():
                return None
            span = slice(int(marks[begin]), int(marks[end]))
            if not _shifted(self.played, span, back, (length, tolerance)):
                return None
        return length

    def window(self, index: int, stage: int, period: int) -> int:
        """Start (ns) of a role's last steady period."""
        _, end, width = self._span(stage, period)
        return int(self.played.start[self.marks[index][end - width]])

    def _span(self, stage: int, period: int) -> tuple[int, int, int]:
        """First and last action to compare (up to the last forward, less the margin), and the
        actions in a period."""
        forwards = self.forwards[stage]
        per_microbatch = len(forwards) // self.microbatches
        end = len(forwards) - 1 - self.margin * per_microbatch
        begin, before = (end - n * per_microbatch for n in (self.reach, period))
        if min(begin, before) < 0:
            return 0, 0, 1  # too short to compare anything
        first, last, one = forwards[[begin, end, before]].tolist()
        return first, last, last - one


def _forwards(orders: Sequence[Columns]) -> list[NDArray[np.intp]]:
    kinds = ([kind == "F" for kind, _ in order.rows] for order in orders)
    return [
        np.flatnonzero(np.array(is_forward)[order.row])
        for is_forward, order in zip(kinds, orders, strict=True)
    ]


def _period(program: Program, microbatches: int) -> int | None:
    return program.schedule.period(program.stages, program.chunks_per_stage, microbatches)


def _warmup(program: Program) -> int:
    return program.schedule.warmup_microbatches(
        program.stages, program.chunks_per_stage, program.microbatches
    )


def _reach(program: Program, period: int) -> int:
    """Periods that have to match: more than any dependency reaches back, which is from a backward
    pass to its own forward pass, as many micro-batches earlier as the warm-up lets in."""
    return ceil(_warmup(program) / period) + 1


def _margin(program: Program, period: int) -> int:
    """Periods by which roles end their steady states apart: at most the warm-up."""
    return ceil(_warmup(program) / period)


def _same_pattern(order: Columns, span: tuple[int, int], width: int, period: int) -> bool:
    begin, end = span
    now, before = slice(begin, end), slice(begin - width, end - width)
    return bool(
        (order.row[now] == order.row[before]).all()
        and (order.paired[now] == order.paired[before]).all()
        and (order.microbatch[now] == order.microbatch[before] + period).all()
    )


def _shifted(played: Played, span: slice, back: int, shift: tuple[int, int]) -> bool:
    """Every operation starts and ends one period after its predecessor."""
    length, tolerance = shift
    before = slice(span.start - back, span.stop - back)
    return all(
        bool((np.abs(times[span] - times[before] - length) <= tolerance).all())
        for times in (played.start, played.end)
    )
