"""What turns take, each on a role of its own: the steps of the templates that the engine plays,
with their links and SMs to themselves, one after the other on in-order streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from twin.engine.cost_model import played_alone
from twin.engine.fluid import ROUNDING
from twin.engine.overlap import paired
from twin.engine.program import (
    COMPUTE,
    HOST,
    STREAMS,
    Program,
    Step,
    Template,
    last_steps,
    roots,
)
from twin.engine.templates import Passes

IDLE: Final = (0,) * len(STREAMS)
"""Streams before anything ran on them."""


def nanoseconds_alone(step: Step, program: Program) -> int:
    """Nanoseconds of a step with its links to itself, rounded as the event engine does."""
    return ceil(step.alone_ns(program.capacity) - ROUNDING)


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """What a turn takes right behind an equal one, and until the results of its passes."""

    lasts: int
    results: tuple[int, ...]
    lead: int
    """The pass of the first step."""
    second: int
    """How long after the start the second pass of a pair begins."""


class TurnTimer:
    """The times of a Program's turns. Equal ones are timed once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[tuple[int, ...], TurnTimes] = {}
        own = program.receive
        lasts = [nanoseconds_alone(step, program) for step in own]
        self.receive = max(_ends(own, lasts, IDLE)[1]) if own else 0
        """Until a message is gathered."""

    def of(self, passes: Passes) -> TurnTimes:
        """The times of a pass or a pair."""
        templates = [self.program.template(*one) for one in passes]
        same = tuple(map(id, templates))
        if same not in self._known:
            self._known[same] = self._timed(templates)
        return self._known[same]

    def _timed(self, templates: Sequence[Template]) -> TurnTimes:
        """With the host a pass ahead."""
        program = self.program
        steps, lanes = joined(templates, program)
        lasts = [nanoseconds_alone(step, program) for step in steps]
        if any(step.sms for step in steps):
            lasts = [end - start for start, end in played_alone(steps, program)]
        free, first = _ends(steps, lasts, IDLE)
        starts = [end - ns for end, ns in zip(free, lasts, strict=True)]
        second = (starts[i] for i in roots(steps) if lanes[i] != lanes[0])
        at = first[COMPUTE]
        host = sum(ns for step, ns in zip(steps, lasts, strict=True) if step.stream == HOST)
        first[HOST] = at - host
        ends, last = _ends(steps, lasts, first)
        results, _ = last_steps([step.stream for step in steps], lanes)
        return TurnTimes(
            lasts=last[COMPUTE] - at,
            results=tuple(ends[place] - at for place in results),
            lead=lanes[0],
            second=min(second, default=0),
        )


def _ends(
    steps: Template, lasts: Sequence[int], before: Sequence[int]
) -> tuple[list[int], list[int]]:
    """When each step ends, and each stream, streams being busy until some time before."""
    ends, streams = list[int](), [*before]
    for step, ns in zip(steps, lasts, strict=True):
        ends.append(max([streams[step.stream], *(ends[i] for i in step.after)]) + ns)
        streams[step.stream] = ends[-1]
    return ends, streams


def joined(templates: Sequence[Template], program: Program) -> tuple[Template, tuple[int, ...]]:
    """The steps of a pass, or of a pair, and the pass that each belongs to."""
    if len(templates) == 1:
        return templates[0], (0,) * len(templates[0])
    forward, backward = templates
    pair = paired(forward, backward, program.capacity, program.sync_ns, program.beside)
    return pair.steps, pair.lanes
