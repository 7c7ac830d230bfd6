"""The host beside the device: what it takes to issue every step, and the steps that wait for it.

A rank has one host thread. It issues steps in the order of the template, runs ahead of the device,
and stops where it needs an answer of the device. It is one more in-order stream. A step cannot
start before the host begins to issue it, and what follows a step not before the host has issued all
of that. While the host is ahead none of this is seen, so a template holds host steps only where a
host that begins with the template would hold the device up, and where it waits for the device. That
leaves out nothing: the host of a step is never later than one that begins with the template.

A CPU that trains is host and device in one (`ahead: false`): its thread issues a segment, then runs
it. Steps named `issue` on the stream of compute stand for that, and no time is hidden.

The host may be one pass ahead of the device, as the queue of launches of a GPU (1,024) allows for
about one: `twin.engine.graph` has that edge. OURS: one thread for forward and backward (PyTorch's
autograd thread runs while the main thread waits), and no launch latency beside `sync`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from statistics import NormalDist
from typing import Final, Literal

from twin.arch.ops import Exchange, Layer, Op, Work
from twin.engine.program import COMPUTE, HOST, Step, Template
from twin.spec.calibration import CalibrationSpec
from twin.spec.software import CollectorSpec, HostThreadSpec, OperationSpec

Part = Literal["forward", "backward", "weight"]
"""Forward, the gradient of the input, and that of the weight."""
NAME: Final = "host"
"""Of the steps of the host, and of the end of a pass that waits for it."""
ISSUE: Final = "issue"
"""Of steps of the compute stream in which the thread of the device issues what it runs next."""
COLLECTED: Final = "garbage_collection"
"""Of the closing step in which ranks wait for hosts that collect garbage."""


@dataclass(frozen=True, slots=True)
class HostCosts:
    """Seconds of the host for everything that it issues. Without a software stack every kernel
    that the twin counts takes the calibration's `dispatch`."""

    calibration: CalibrationSpec
    software: HostThreadSpec | None = None
    cpu: float = 1.0
    """Time of the node's CPU over that of the CPU of an H100 server."""
    ranks: int = 1
    """Ranks that wait for one another in a layer."""
    casts_in_calls: bool = False
    """Casts to FP8 are launched by the call of the product they are for, as in Transformer Engine:
    one costs the host nothing more, a loop over experts what its kernels add on the device."""

    @property
    def slowness(self) -> float:
        """Time of an item over what the software says; of ranks that exchange, on the slowest."""
        if self.software is None:
            return self.cpu
        slowest = 1.0 + self.software.rank_spread * largest(self.ranks)
        return self.cpu * self.software.slowness * slowest

    @property
    def ahead(self) -> bool:
        """Whether the host issues while the device runs: on a CPU they are one thread."""
        return self.software is None or self.software.ahead

    @property
    def sync_ns(self) -> float:
        """What it takes the host to see that the device has come to a point, and to go on."""
        return 0.0 if self.software is None else self.software.sync * 1e9

    def op(self, op: Op, part: Part) -> float:
        """Seconds to issue one part of an op."""
        work: Work = getattr(op, part)
        if not work.kernels:
            return 0.0
        if self.software is None:
            kernels: float = work.kernels
            if self.casts_in_calls and op.kind == "cast":
                kernels = self._looped(kernels) - 1.0
            return kernels * self.calibration.dispatch
        if self._graphed(op.name, op.kind):
            return 0.0
        own = self._operation(op)
        if own is None:
            each = self.software.call if part == "forward" else self.software.gradient
            return self.slowness * each * work.kernels
        if part == "forward":
            each = _turns(own, op, work) * self._items(own.each_forward)
            return self.slowness * (self._items(own.forward) + each)
        each = _turns(own, op, work) * self._items(own.each_backward)
        whole = self.slowness * (self._items(own.backward) + each)
        return whole / 2 if op.weight.kernels else whole

    def run(self, op: Op, part: Part, work: Work) -> Work:
        """A work with the kernels that the software runs for it; of products as many as counted."""
        own = self._operation(op)
        if own is None or work.product is not None or not work.kernels:
            return work
        kernels = own.forward_kernels if part == "forward" else own.backward_kernels
        if kernels is None:
            return work
        return replace(work, kernels=kernels / 2 if op.weight.kernels else kernels)

    def copy(self) -> float:
        """Seconds to issue a copy."""
        if self.software is None:
            return self.calibration.dispatch
        return self.slowness * self.software.call

    def exchange(self, name: str, pieces: int = 1, *, backward: bool = False) -> float:
        """Seconds to issue a collective, whole or in pieces that one call launches."""
        if self.software is None:
            return self._looped(pieces) * self.calibration.dispatch
        if self._graphed(name):
            return 0.0
        own = self.software.operations.get(name)
        taken = pieces * self.software.collective
        if own is not None:
            taken += self._items(own.backward if backward else own.forward)
        return self.slowness * taken

    def asks(self, name: str, *, asks: bool) -> Literal["", "start", "end"]:
        """Whether the host waits for an exchange of the layer: for its end, or until it could
        start."""
        if self.software is None:
            return "end" if asks else ""
        if name not in self.software.waits:
            return ""
        return "end" if asks else "start"

    def waits_for(self, name: str) -> bool:
        """Whether the host waits for an operation, or for messages."""
        return self.software is not None and name in self.software.waits

    @property
    def microbatch(self) -> float:
        """Seconds of the host for a pass as a whole: its messages and the schedule."""
        if self.software is None:
            return 0.0
        return self.slowness * self._items(self.software.each_microbatch)

    @property
    def checkpoint(self) -> float:
        """Seconds of the host for a layer that is computed again, beside its operations."""
        if self.software is None:
            return 0.0
        return self.slowness * self._items(self.software.each_checkpoint)

    def step(self, layers: Iterable[Layer]) -> float:
        """Seconds of the host for a step as a whole, with these layers on the rank."""
        if self.software is None:
            return 0.0
        own, each = self._items(self.software.each_step), self._items(self.software.each_weight)
        for layer in layers:
            own += each * sum(one.count for one in layer.matrices)
            known = (self._operation(op) for op in layer.items if isinstance(op, Op))
            own += sum(self._items(one.update) for one in known if one is not None)
        return self.slowness * own

    @property
    def collector(self) -> CollectorSpec | None:
        """Python's garbage collection."""
        return None if self.software is None else self.software.collector

    def kept(self, item: Op | Exchange) -> float:
        """Python's objects that an item of a layer keeps until its backward; the replay of a graph
        makes none."""
        if self.collector is None or self._graphed(item.name):
            return 0.0
        own = self._operation(item)
        if own is None or (isinstance(item, Op) and self._graphed(item.kind)):
            return 0.0
        turns = _turns(own, item, item.forward) if isinstance(item, Op) else 0
        return sum(
            number * (own.forward.get(name, 0.0) + turns * own.each_forward.get(name, 0.0))
            for name, number in self.collector.kept.items()
        )

    def _graphed(self, *names: str) -> bool:
        graphed = () if self.software is None else self.software.graphed
        return "all" in graphed or not set(names).isdisjoint(graphed)

    def _operation(self, item: Op | Exchange) -> OperationSpec | None:
        if self.software is None:
            return None
        known = self.software.operations
        return known.get(item.name) or (known.get(item.kind) if isinstance(item, Op) else None)

    def _items(self, counts: Mapping[str, float]) -> float:
        assert self.software is not None, "counts belong to a software stack"
        items = self.software.items
        return sum(count * items[name] for name, count in counts.items())

    def _looped(self, kernels: float) -> float:
        """What one call whose loop in C++ launches so many kernels takes of the host, in launches
        of PyTorch: one, and of each further kernel what it adds on the device."""
        profile = self.calibration
        further = min(1.0, profile.launch / profile.dispatch) if profile.dispatch else 0.0
        return 1.0 + max(0.0, kernels - 1.0) * further


def _turns(own: OperationSpec, op: Op, work: Work) -> float:
    """How often a loop in the framework runs: for each expert of a product, each kernel of a
    cast, each block of queries of attention."""
    if op.forward.product is not None:
        return op.forward.product.groups
    if op.kind == "cast":
        return work.kernels
    blocks = (size for longest, size in own.query_blocks if op.queries <= longest)
    block = next(blocks, None)
    return 1 if block is None else ceil(op.queries / block)


def largest(ranks: int) -> float:
    """The largest of so many standard normal numbers, expected (Blom 1958, Statistical Estimates
    and Transformed Beta-Variables): sums over a layer's hundreds of calls are nearly normal."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


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
