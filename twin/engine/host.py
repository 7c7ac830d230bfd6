"""The host beside the device: what it takes to issue every step, and the steps that wait for it.

A rank has one host thread. It issues steps in the order of the template, runs ahead of the device,
and stops where it needs an answer of the device. It is one more in-order stream. A step cannot
start before the host begins to issue it, and what follows a step not before the host has issued all
of that. While the host is ahead none of this is seen, so a template holds host steps only where a
host that begins with the template would hold the device up, and where it waits for the device. That
leaves out nothing in the pass itself: the host of a step is never later than one that begins with
the template. But it takes the host its time, which passes behind it may wait for. So where a stage
has templates with host steps, the others end with one that nothing of theirs waits for (`counted`).

A CPU that trains is host and device in one (`ahead: false`): its thread issues a segment, then runs
it. Steps named `issue` on the stream of compute stand for that, and no time is hidden.

The host may be one pass ahead of the device, as the queue of launches of a GPU (1,024) allows for
about one: `twin.engine.blocks` has that edge. OURS: one thread for forward and backward (PyTorch's
autograd thread runs while the main thread waits), and no launch latency beside `sync`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from twin.engine.program import COMPUTE, HOST, Step, Template

NAME: Final = "host"
"""Of the steps of the host, and of the end of a pass that waits for it."""
ISSUE: Final = "issue"
"""Of steps of the compute stream in which the thread of the device issues what it runs next."""
COLLECTED: Final = "garbage_collection"
"""Of the closing step in which ranks wait for hosts that collect garbage."""


def in_thread(template: Template, sync_ns: float) -> Template:
    """A template whose thread issues each step before it runs: what it takes is a step of the
    compute stream. Kernels of a segment are issued together, which takes as long. Transfers run on
    while the thread goes on, unless it asks for them."""
    if not any(step.host_ns or step.asks for step in template):
        return template
    steps: list[Step] = []
    places: list[int] = []
    asked: tuple[int, ...] = ()
    seen = 0.0
    for step in template:
        after = tuple(places[i] for i in step.after)
        if step.host_ns or asked:
            waits = after if step.stream == COMPUTE else ()
            steps.append(Step(ISSUE, COMPUTE, round(step.host_ns + seen), (*waits, *asked)))
            after, asked, seen = (*after, len(steps) - 1), (), 0.0
        places.append(len(steps))
        steps.append(replace(step, after=after, host_ns=0.0, asks=""))
        if step.asks:
            asked, seen = (places[-1],) if step.asks == "end" else after, sync_ns
    if asked:
        steps.append(Step(ISSUE, COMPUTE, round(seen), asked))
    return tuple(steps)


@dataclass(slots=True)
class _Issue:
    """A host thread that begins with a template whose links and SMs are its own."""

    capacity: Mapping[str, float]
    sync_ns: float
    now: float = 0.0
    """When it issues the next step."""

    early: set[int] = field(default_factory=set[int])
    """Steps that it asks for before they have come so far."""

    def held(self, template: Template) -> tuple[list[bool], float]:
        """Which steps wait for the host so that something else sees it, and when the last kernel
        ends."""
        ends: list[float] = []
        starts: list[float] = []
        free: dict[int, float] = {}
        held: list[bool] = []
        for place, step in enumerate(template):
            ready = max((ends[i] for i in step.after), default=0.0)
            ready = max(ready, free.get(step.stream, 0.0))
            held.append(self.now > ready + _UNSEEN_NS)
            starts.append(max(ready, self.now) if held[-1] else ready)
            ends.append(starts[-1] + step.alone_ns(self.capacity))
            free[step.stream] = ends[-1]
            self.now += step.host_ns
            if step.asks:
                answered = ends[-1] if step.asks == "end" else starts[-1]
                if self.now <= answered:
                    self.early.add(place)
                self.now = max(self.now, answered) + self.sync_ns
        for place in _unseen(template, starts, ends):
            held[place] = False
        return held, free.get(COMPUTE, 0.0)


def _unseen(template: Template, starts: list[float], ends: list[float]) -> Iterator[int]:
    """Exchanges that are through before all that waits for them could start: when they begin does
    not matter."""
    needed: dict[int, float] = {}
    last: dict[int, int] = {}
    for place, step in enumerate(template):
        before = (last[step.stream],) if step.stream in last else ()
        for waited in (*step.after, *before):
            needed[waited] = min(needed.get(waited, inf), starts[place])
        last[step.stream] = place
    for place, start in needed.items():
        step = template[place]
        if step.stream != COMPUTE and not step.asks and start > ends[place]:
            yield place


_UNSEEN_NS: Final = 500.0
"""Waits for the host that are shorter are left out, a tenth of a launch; an operation less each."""


def with_host(template: Template, capacity: Mapping[str, float], sync_ns: float) -> Template:
    """A template with the steps of the host among its own."""
    return weave(template, capacity, sync_ns)[0]


def weave(
    template: Template, capacity: Mapping[str, float], sync_ns: float
) -> tuple[Template, tuple[int, ...]]:
    """The same, and where in it each step of the template is."""
    host = _Issue(capacity, sync_ns)
    held, end = host.held(template)
    late = host.now > end + _UNSEEN_NS
    if not host.now or not (late or any(held) or any(step.asks for step in template)):
        return template, tuple(range(len(template)))
    woven = _Woven(sync_ns, host.early)
    woven.weave(template, held, late=late)
    return tuple(woven.steps), tuple(woven.places)


class _Woven:
    """Steps of device and host in one list."""

    def __init__(self, sync_ns: float, early: set[int]) -> None:
        self.sync_ns, self.early = sync_ns, early
        self.steps: list[Step] = []
        self.places: list[int] = []
        """Of the template's steps."""
        self.taken = 0.0
        """What the host has issued since its last step (ns)."""
        self.asked: tuple[int, ...] = ()
        """What its next step waits for."""
        self.last: int | None = None

    def weave(self, template: Template, held: list[bool], *, late: bool) -> None:
        """Add a template with the host's steps; `late`: it ends with the host."""
        for place, (step, waits) in enumerate(zip(template, held, strict=True)):
            if waits:
                self._issue()
            after = tuple(self.places[i] for i in step.after)
            if waits and self.last is not None:
                after = (*after, self.last)
            self.places.append(len(self.steps))
            self.steps.append(replace(step, after=after))
            self.taken += step.host_ns
            if step.asks:
                self._ask(step, after, early=place in self.early)
        self._issue()
        if late and self.last is not None:
            kernels = [i for i, one in enumerate(self.steps) if one.stream == COMPUTE]
            self.steps.append(Step(NAME, COMPUTE, 0, (*kernels[-1:], self.last)))

    def _ask(self, step: Step, after: tuple[int, ...], *, early: bool) -> None:
        """The host goes on when the device has come to a step, or through it. What it has issued
        by then is no step if it is early: nothing waits for that, and the answer comes later."""
        place = self.places[-1]
        if self.asked or not early:
            self._issue()
        self.asked = (place,) if step.asks == "end" else after
        self.taken = self.sync_ns

    def _issue(self) -> None:
        """Add what the host has done since."""
        if self.taken <= 0 and not self.asked:
            return
        self.steps.append(Step(NAME, HOST, round(self.taken), self.asked))
        self.last, self.taken, self.asked = len(self.steps) - 1, 0.0, ()


def counted(template: Template) -> Template:
    """A template that nothing waits for the host in, with what it takes the host to issue it."""
    taken = sum(step.host_ns for step in template)
    if not taken or any(step.stream == HOST for step in template):
        return template
    return (*template, Step(NAME, HOST, round(taken), ()))


def without_host(template: Template) -> Template:
    """The steps of the device alone."""
    if not any(step.stream == HOST for step in template):
        return template
    places: dict[int, int] = {}
    steps: list[Step] = []
    for place, step in enumerate(template):
        if step.stream == HOST or (step.stream == COMPUTE and step.name == NAME):
            continue
        places[place] = len(steps)
        after = tuple(places[i] for i in step.after if i in places)
        steps.append(step if after == step.after else replace(step, after=after))
    return tuple(steps)
