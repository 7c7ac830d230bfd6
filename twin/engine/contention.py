"""A turn with what it sets off: messages, and activations on their way between device and host. And
how it runs while what turns before it have set off is under way on the same role, and shares its
links and its SMs: played by events on a role of its own, after what is left of that.

What is left is counted in parts of a step (`PARTS`), so that the same few ways to meet come again
and again and each is played once. Other roles' transfers are left out, and what a message takes
from its receiver's links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from twin.engine.cost_model import played_alone
from twin.engine.pass_dependencies import NOWHERE, Passes
from twin.engine.program import (
    COMPUTE,
    DATA,
    FROM_HOST,
    TO_HOST,
    Program,
    Step,
    Template,
    last_steps,
    parts,
)
from twin.engine.template_timing import NO_PASS, TemplateTiming, alone_ns, joined

PARTS: Final = 32
"""A step that is under way is taken to have so many parts, of which some are left: its end is off
by up to one in 64 of its length, either way."""

Left: TypeAlias = tuple[tuple[Step, int, tuple[int, ...]], ...]
"""What turns before have left, in the order of their streams: step, the parts of it that remain,
and which of the others it waits for."""


def _reductions_meet(program: Program) -> bool:
    """Whether reductions that one turn leaves under way can meet transfers or kernels of the
    next."""
    steps = {id(template): template for template in program.passes.values()}.values()
    late = [step for template in steps for step in template if step.stream == DATA]
    if any(step.sms for step in late):
        return True
    paths = _paths(late)
    others = _paths([step for template in steps for step in template if step.stream != DATA])
    return bool(paths & (others | ({program.message.link} if program.message.bytes else set())))


def _paths(steps: Sequence[Step]) -> set[str]:
    return {path for step in steps if step.traffic for path in parts(step.traffic)}


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """A turn after what others have left: when each of those starts and ends, after the turn's
    start, and the shape of the turn with all that it sets off."""

    late: tuple[tuple[int, int], ...]
    shape: TemplateTiming


@dataclass(slots=True, eq=False)
class Contention:
    """A turn with what it sets off: messages, its activations on their way out, and those of the
    next turn on their way back."""

    steps: Template
    under_way: Template
    """The same, what it sets off being the same for all turns."""
    lanes: tuple[int, ...]
    results: tuple[int, ...]
    """Of every pass the step that ends its result."""
    ends: tuple[int, ...]
    """And its last, which may be a reduction behind that."""
    span: int | None
    """Nanoseconds that all its steps but reductions last one after the other; None where kernels
    wait for reductions."""
    out: int
    """The step that copies out; `NOWHERE`: none."""
    back: int
    messages: tuple[int, ...]
    """Of every pass the step that sends what it gives."""
    met: dict[tuple[object, ...], Meeting] = field(
        default_factory=dict[tuple[object, ...], Meeting]
    )
    behind: dict[int, Template] = field(default_factory=dict[int, Template])
    """The steps with their places in a longer template, by how many come before."""

    def after(self, left: Left, program: Program) -> Meeting:
        """How it runs after what others have left."""
        key = tuple((id(step), parts, after) for step, parts, after in left)
        if key not in self.met:
            late = tuple(_part(*one) for one in left)
            times = played_alone((*late, *self._behind(len(late))), program)
            lasts = [end - start for start, end in times[len(late) :]]
            shape = TemplateTiming.of(self.steps, self.lanes, program.capacity, lasts)
            self.met[key] = Meeting(tuple(times[: len(late)]), shape)
        return self.met[key]

    def _behind(self, others: int) -> Template:
        """The steps, to be played behind so many others."""
        if others not in self.behind:
            self.behind[others] = tuple(
                replace(step, after=tuple(place + others for place in step.after))
                for step in self.steps
            )
        return self.behind[others]


def remaining(parts: float, start: int, end: int, now: int) -> float:
    """What is left at `now`, before the end, of so many parts that take from `start` to `end`."""
    return parts if start >= now else parts * (end - now) / (end - start)


def whole(parts: float) -> int:
    """The nearest number of parts that a step is played with, at least one."""
    return max(1, round(parts))


def _part(step: Step, parts: int, after: tuple[int, ...]) -> Step:
    """So many parts of a step, which waits for these others."""
    share, flow = parts / PARTS, step.traffic
    if flow is not None:
        flow = replace(
            flow,
            nvlink_bytes=flow.nvlink_bytes * share,
            nic_bytes=flow.nic_bytes * share,
            far_bytes=flow.far_bytes * share,
            to_host_bytes=flow.to_host_bytes * share,
            from_host_bytes=flow.from_host_bytes * share,
        )
    return replace(step, duration_ns=round(step.duration_ns * share), after=after, traffic=flow)


class Contentions:
    """The turns of a Program with what they set off, each made when first met."""

    def __init__(self, program: Program) -> None:
        self.program, self.needed = program, _reductions_meet(program)
        self._known: dict[tuple[object, ...], Contention] = {}
        self._steps: dict[tuple[int, float], Step] = {}

    def of(self, passes: Passes, streams: tuple[int, ...], chunks: tuple[int, int]) -> Contention:
        """A turn that sends its results on these streams, and copies the activations of one chunk
        out and of another back; chunks that do the same share theirs."""
        templates = [self.program.template(*one) for one in passes]
        offload = self.program.offload
        sizes = tuple(
            None if chunk == NOWHERE or offload is None else offload.bytes[chunk]
            for chunk in chunks
        )
        key = *map(id, templates), *streams, *sizes
        if key not in self._known:
            self._known[key] = self._made(templates, streams, sizes)
        return self._known[key]

    def _made(
        self,
        templates: Sequence[Template],
        streams: tuple[int, ...],
        sizes: tuple[float | None, ...],
    ) -> Contention:
        steps, lanes = joined(templates, self.program)
        results, ends = last_steps([step.stream for step in steps], lanes)
        last = max(i for i, step in enumerate(steps) if step.stream == COMPUTE)
        extra: list[Step] = []
        waits: list[int] = []

        def add(step: Step | None, after: int) -> int:
            if step is None:
                return NOWHERE
            extra.append(step)
            waits.append(after)
            return len(steps) + len(extra) - 1

        out, back = (self._copy(*one) for one in zip((TO_HOST, FROM_HOST), sizes, strict=True))
        made_out = add(out, results[0])
        messages = tuple(
            add(self._message(stream), end) for stream, end in zip(streams, results, strict=True)
        )
        made_back = add(back, last)
        data = {place for place, step in enumerate(steps) if step.stream == DATA}
        waits_for_data = any(data & {*step.after} for step in steps if step.stream != DATA)
        lasts = (alone_ns(one, self.program.capacity) for one in steps if one.stream != DATA)
        return Contention(
            steps=(
                *steps,
                *(replace(one, after=(n,)) for one, n in zip(extra, waits, strict=True)),
            ),
            under_way=(*steps, *extra),
            lanes=(*lanes, *(NO_PASS for _ in extra)),
            results=results,
            ends=ends,
            span=None if waits_for_data else sum(lasts),
            out=made_out,
            back=made_back,
            messages=messages,
        )

    def _copy(self, stream: int, size: float | None) -> Step | None:
        """A copy of so many bytes from the device to the host, or back."""
        offload = self.program.offload
        if size is None or offload is None:
            return None
        return self._steps.setdefault((stream, size), offload.copy(stream, size))

    def _message(self, stream: int) -> Step | None:
        """A message on a stream."""
        if stream == NOWHERE:
            return None
        message = self.program.message
        return self._steps.setdefault((stream, message.bytes), message.step(stream))
