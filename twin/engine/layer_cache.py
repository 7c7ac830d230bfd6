"""What one layer adds to a template, made once: where the same layer follows the same state of a
template again, its steps are those of before, moved behind what is there.

A layer's steps depend on the layers before it only through what those left open: the segment that
goes on, what the next step waits for, the collectives under way. That state is compared exactly,
seconds included, with places counted from the end of the template, so that a template put together
from remembered stretches equals one made layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twin.arch.ops import Layer
from twin.engine.builder import Builder
from twin.engine.cost_model import Kernels
from twin.engine.program import COMPUTE, Step, Template

_OPEN_ENDS = 2
"""Ends of layers that a gather looks back to (`Builder.gather`)."""


class _State(NamedTuple):
    """What a builder's next steps depend on; places are counted from its end."""

    name: str
    kernels_of: str
    waiting: bool
    pending: Kernels
    layer: int | None
    rows: tuple[tuple[int, float], ...]
    owed: Kernels
    tail: tuple[int, ...]
    before: tuple[int, ...]
    aside: tuple[int, ...]
    reducing: tuple[int, ...]
    ends: tuple[int, ...]
    kernels_end: int | None


@dataclass(slots=True)
class Stretch:
    """Steps of one layer as they were made behind `start` other steps, the ends of layers among
    them, and the state that they leave."""

    layer: Layer
    """Kept, so that no other layer gets its identity."""
    start: int
    steps: Template
    ends: tuple[int, ...]
    left: _State
    elsewhere: dict[int, Template] = field(default_factory=dict[int, Template])
    """The same steps behind other numbers of steps: templates of several chunks share them."""

    def at(self, start: int) -> Template:
        """The same behind another number of steps."""
        by = start - self.start
        if not by:
            return self.steps
        if start not in self.elsewhere:
            self.elsewhere[start] = tuple([_moved(step, by) for step in self.steps])
        return self.elsewhere[start]


def add(layer: Layer, key: object, builder: Builder, make: Callable[[], None]) -> None:
    """Add a layer's steps to a builder; `make` adds them where they are not known, and `key` says
    what else they depend on, beside the builder's state and costs."""
    entry = id(layer), key, _state(builder)
    start, ends = len(builder.steps), len(builder.ends)
    found: Stretch | None = builder.costs.stretches.get(entry)
    if found is not None:
        builder.steps += found.at(start)
        builder.ends += [start + end for end in found.ends]
        _resume(builder, found.left)
        return
    make()
    added = tuple(end - start for end in builder.ends[ends:])
    steps = tuple(builder.steps[start:])
    builder.costs.stretches[entry] = Stretch(layer, start, steps, added, _state(builder))


def _state(builder: Builder) -> _State:
    end = len(builder.steps)
    ends = builder.ends[-_OPEN_ENDS:]
    # Only layers that are gathered ask which kernel was the last.
    last = _last_kernel(builder) - end if ends else None
    return _State(
        builder.name,
        builder.kernels_of,
        builder.waiting,
        builder.pending,
        builder.layer if builder.costs.by_layer else None,
        builder.rows,
        builder.owed,
        _shifted(builder.tail, -end),
        _shifted(builder.before, -end),
        _shifted(builder.aside, -end),
        _shifted(builder.reducing, -end),
        _shifted(ends, -end),
        last,
    )


def _resume(builder: Builder, left: _State) -> None:
    """Go on from a state, at the end of the steps that are there."""
    end = len(builder.steps)
    builder.name, builder.kernels_of, builder.waiting = left.name, left.kernels_of, left.waiting
    builder.pending, builder.rows, builder.owed = left.pending, left.rows, left.owed
    builder.tail, builder.before = _shifted(left.tail, end), _shifted(left.before, end)
    builder.aside, builder.reducing = _shifted(left.aside, end), _shifted(left.reducing, end)


def _shifted(places: Sequence[int], by: int) -> tuple[int, ...]:
    return tuple([place + by for place in places]) if places else ()


def _last_kernel(builder: Builder) -> int:
    places = range(len(builder.steps) - 1, -1, -1)
    return next(place for place in places if builder.steps[place].stream == COMPUTE)


def _moved(step: Step, by: int) -> Step:
    """A step that many places later."""
    return Step(
        step.name,
        step.stream,
        step.duration_ns,
        _shifted(step.after, by),
        step.traffic,
        step.group,
        step.host_ns,
        step.sms,
        step.sm_bound,
        step.slowed,
        step.rows,
        step.asks,
    )
