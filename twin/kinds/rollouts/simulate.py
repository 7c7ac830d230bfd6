"""Plan to trace of rollouts, with and without partial ones.

Iterations of rollouts, played: requests wait for a sandbox and for room, go to the engine with
the fewest, take turns with their environment, and are done, or paused when the iteration ends.

A request that was paused goes on first in the next iteration. Its cache was made by another policy,
so that all of it is prefilled again. What its environment was about to answer is there by then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from numpy.random import default_rng
from simpy import Environment, Event

from twin.errors import Problem, ScenarioError
from twin.inference.engine import Engine
from twin.kinds.rollouts.engine import Events, PlayedEngine, StepTable, Work, step_table
from twin.kinds.rollouts.plan import (
    PATH,
    BothTraces,
    Load,
    Place,
    RolloutIteration,
    RolloutPlan,
    RolloutTrace,
    Rules,
    Sample,
    Spent,
    draw,
    rules_of,
)
from twin.kinds.rollouts.prefill import PrefillPool, Prompt
from twin.spec.rollout import RolloutSpec

Fresh = Callable[[int, int], Sequence[Sample]]
"""So many new requests for an iteration, by its number."""


@dataclass(slots=True, eq=False)
class Request:
    """A request under way over iterations; `number` is its place in the iteration."""

    identity: int
    sample: Sample
    number: int = 0
    turn: int = 0
    in_turn: int = 0
    """Tokens of the turn that are written."""
    written: int = 0
    this_time: int = 0
    """Tokens that were written in this iteration."""
    cached: int = 0
    """Tokens whose cache is on its engine."""
    has_sandbox: bool = False
    engine: PlayedEngine | None = None
    arrived_ns: int = 0
    begun_ns: int | None = None
    """When it had its first token, in this iteration."""

    @property
    def context(self) -> int:
        """Tokens that it consists of now, what came back included."""
        return self.sample.prompt + self.written + sum(self.sample.read[: self.turn])

    @property
    def is_done(self) -> bool:
        """Whether all turns are written."""
        return self.turn == len(self.sample.written)

    def anew(self, number: int) -> None:
        """At the begin of an iteration, nothing is cached and nobody has given it room."""
        self.number, self.this_time, self.cached = number, 0, 0
        self.has_sandbox, self.engine, self.begun_ns = False, None, None


def play(
    fresh: Fresh, requests: int, table: StepTable, place: Place, rules: Rules, iterations: int = 1
) -> RolloutTrace:
    """So many iterations in a row, each of `requests`: those that were paused, and `fresh` ones.

    Raises ValueError where a request has no room on an empty engine.
    """
    env = Environment()
    under_way: list[Request] = []
    begun, done, found = 0, dict[int, int](), list[RolloutIteration]()
    events = 0
    for number in range(iterations):
        new = fresh(requests - len(under_way), number)
        under_way += [Request(begun + at, sample) for at, sample in enumerate(new)]
        begun += len(new)
        largest = max((one.sample.longest for one in under_way), default=0)
        if largest > place.tokens or place.sequences < 1:
            raise ValueError(f"a request of {largest:,} tokens has no room on an engine")
        played = _Played(env, place, rules, under_way, table)
        found.append(played.whole())
        events += sum(engine.events for engine in played.engines)
        done |= {one.identity: one.written for one in under_way if one.is_done}
        under_way = [one for one in under_way if not one.is_done]
    left = {one.identity: one.written for one in under_way}
    return RolloutTrace(tuple(found), done, left, events)


@dataclass(slots=True, eq=False)
class _Played:
    """One iteration under way."""

    env: Environment
    place: Place
    rules: Rules
    requests: Sequence[Request]
    table: StepTable
    engines: list[PlayedEngine] = field(init=False)
    over: Event = field(init=False)
    queue: deque[Request] = field(init=False)
    back: deque[Request] = field(default_factory=deque[Request])
    """Those whose environment has answered, and whose room was given up: before all others, since
    they hold sandboxes."""
    sandboxes: int | None = field(init=False)
    waiting: int = 0
    running: int = 0
    paused: int = 0
    again: int = 0
    pool: PrefillPool | None = None
    done_ns: list[int] = field(default_factory=list[int])
    first_ns: list[int] = field(default_factory=list[int])
    next_ns: list[float] = field(default_factory=list[float])
    loads: list[Load] = field(default_factory=list[Load])
    ended: bool = False

    def __post_init__(self) -> None:
        place = self.place
        self.over, self.queue = self.env.event(), deque(self.requests)
        if place.prefills:
            self.pool = PrefillPool(self.env, place.prefills, self._admit)
        self.sandboxes = place.sandboxes
        self.engines = [
            PlayedEngine(
                self.env,
                self.table,
                self._turn_ended,
                place.tokens,
                place.sequences,
                place.tokens if place.preempts else None,
                place.most,
                self._put_back,
            )
            for _ in range(place.engines)
        ]
        for number, request in enumerate(self.requests):
            request.anew(number)
            request.arrived_ns = int(self.env.now)

    def whole(self) -> RolloutIteration:
        """Play it to its end: once it is over, engines finish the step under way."""
        begin, before = int(self.env.now), sum(one.written for one in self.requests)
        lives = [self.env.process(engine.live()) for engine in self.engines]
        if self.pool:
            self.pool.begin()
        if self.place.arrivals:
            self.queue.clear()
            self.env.process(self._arrive(self.place.arrivals))
        self._admit()
        if self.requests:
            self.env.run(until=self.over)
        for engine in self.engines:
            engine.stopping = True
            engine.wake()
        self.env.run(until=self.env.all_of(lives))
        for engine in self.engines:
            for work in engine.halt():
                self._count(self.requests[work.number], work.written)
        end = int(self.env.now)
        return RolloutIteration(
            begin_ns=begin,
            end_ns=end,
            done_ns=tuple(self.done_ns),
            carried=sum(not one.is_done for one in self.requests),
            written=sum(one.written for one in self.requests) - before,
            prefilled=sum(engine.prefilled for engine in self.engines)
            + (self.pool.prefilled if self.pool else 0),
            again=self.again,
            spent_ns=self._spent(end - begin),
            loads=tuple(self.loads),
            lengths=tuple(one.sample.longest for one in self.requests if one.is_done),
            first_ns=tuple(self.first_ns),
            next_ns=tuple(self.next_ns),
            pool_ns=self.pool.busy_ns if self.pool else 0,
            moving_ns=self.pool.moving_ns if self.pool else 0,
            away_ns=sum(_overlap(one.idles, self._away(end)) for one in self.engines),
        )

    def _arrive(self, rate: float) -> Events:
        """Requests come one by one, after times whose chance to be longer falls exponentially."""
        dice = default_rng([self.place.seed, int(self.env.now) % 2**32])
        for request, wait in zip(
            self.requests, dice.exponential(1e9 / rate, len(self.requests)), strict=True
        ):
            yield self.env.timeout(round(wait))
            if self.ended:
                return
            request.arrived_ns = int(self.env.now)
            self.queue.append(request)
            self._admit()

    def _away(self, end: int) -> list[tuple[int, int]]:
        """When some request waited for its environment, in order."""
        moments = [*self.loads, Load(end, 0, 0, 0)]
        return [(one.ns, then.ns) for one, then in pairwise(moments) if one.waiting]

    def _spent(self, length: int) -> dict[Spent, int]:
        decode, prefill = (
            sum(one.spent[key] for one in self.engines) for key in ("decode", "prefill")
        )
        idle = len(self.engines) * length - decode - prefill
        return {"decode": decode, "prefill": prefill, "idle": idle}

    def _admit(self) -> None:
        """Give room to requests in the order of the queue, as long as the first has some."""
        while (self.back or self.queue) and not self.ended:
            queue = self.back or self.queue
            request = queue[0]
            if self.sandboxes == 0 and not request.has_sandbox:
                break
            if self.pool and self.pool.full:
                break
            engine, longest = max(self.engines, key=_room), request.sample.longest
            if engine.free_sequences < 1 or not engine.room_for(request.context, longest):
                break
            queue.popleft()
            if self.sandboxes is not None and not request.has_sandbox:
                self.sandboxes, request.has_sandbox = self.sandboxes - 1, True
            engine.free_sequences -= 1
            engine.free_tokens -= longest
            request.engine = engine
            self._begin_turn(request, engine)
        self._note()

    def _begin_turn(self, request: Request, engine: PlayedEngine) -> None:
        left = request.sample.written[request.turn] - request.in_turn
        if self.rules.budget is not None:
            left = min(left, self.rules.budget - request.this_time)
        if not request.cached and request.written:
            # All but what has just come back was cached before.
            just = (
                request.sample.read[request.turn - 1] if request.turn and not request.in_turn else 0
            )
            self.again += request.context - just
        self.running += 1
        new = request.context - request.cached
        if self.pool is None:
            engine.put(Work(request.number, new, request.cached, left))
            return
        ready = Work(request.number, 0, request.context, left)
        first, sent = partial(self._first, request), partial(self._cache_is_there, engine, ready)
        self.pool.put(Prompt(new, request.cached, engine, first, sent))

    def _cache_is_there(self, engine: PlayedEngine, work: Work) -> None:
        if not self.ended:
            engine.put(work)

    def _first(self, request: Request, ns: int | None = None) -> None:
        """A request has its first token, now unless told."""
        if request.begun_ns is None:
            request.begun_ns = int(self.env.now) if ns is None else ns
            self.first_ns.append(request.begun_ns - request.arrived_ns)

    def _turn_ended(self, engine: PlayedEngine, work: Work) -> None:
        """Of an engine: a turn, or what the budget leaves of it, is written."""
        request = self.requests[work.number]
        self._first(request, work.begun_ns)
        self._count(request, work.written)
        self.running -= 1
        if request.is_done and len(request.sample.written) == 1 and request.begun_ns is not None:
            self.next_ns.append((self.env.now - request.begun_ns) / request.sample.tokens)
        spent = self.rules.budget is not None and request.this_time >= self.rules.budget
        if request.is_done or spent:
            self._leave(request, engine)
        else:
            self.env.process(self._environment(request, engine))
        self._note()

    def _put_back(self, engine: PlayedEngine, work: Work) -> None:
        """A request that has no room any more waits before all others, without its cache."""
        request = self.requests[work.number]
        self._count(request, work.written)
        self.running -= 1
        self._give_back(request, engine)
        self.queue.appendleft(request)
        self._note()

    def _count(self, request: Request, tokens: int) -> None:
        request.in_turn += tokens
        request.written += tokens
        request.this_time += tokens
        request.cached = request.context
        if request.in_turn == request.sample.written[request.turn]:
            request.turn, request.in_turn = request.turn + 1, 0

    def _leave(self, request: Request, engine: PlayedEngine) -> None:
        """Done, or paused for this iteration."""
        self._give_back(request, engine)
        if self.sandboxes is not None:
            self.sandboxes += 1
        if request.is_done:
            self.done_ns.append(int(self.env.now))
        else:
            self.paused += 1
        enough = self.rules.done is not None and len(self.done_ns) >= self.rules.done
        everyone = len(self.done_ns) + self.paused == len(self.requests)
        if (enough or everyone) and not self.over.triggered:
            self.ended = True
            for one in self.engines:
                one.stopping = True
            self.over.succeed()
        else:
            self._admit()

    def _give_back(self, request: Request, engine: PlayedEngine) -> None:
        engine.free_sequences += 1
        engine.free_tokens += request.sample.longest
        request.engine, request.cached = None, 0

    def _environment(self, request: Request, engine: PlayedEngine) -> Events:
        """Wait for the answer; then the next turn, where there is room for it."""
        self.waiting += 1
        if not self.place.keeps_cache:
            self._give_back(request, engine)
            self._admit()
        yield self.env.timeout(request.sample.waits_ns[request.turn - 1])
        if self.ended:
            return
        self.waiting -= 1
        if request.engine is None:
            self.back.append(request)
            self._admit()
        else:
            self._begin_turn(request, engine)
            self._note()

    def _note(self) -> None:
        now = int(self.env.now)
        load = Load(now, self.running, self.waiting, len(self.queue) + len(self.back))
        if self.loads and self.loads[-1].ns == now:
            self.loads[-1] = load
        else:
            self.loads.append(load)


def _overlap(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> int:
    """Nanoseconds that two lists of spans, each in order, have in common."""
    total = at = 0
    for begin, end in one:
        while at < len(other) and other[at][1] <= begin:
            at += 1
        inside = at
        while inside < len(other) and other[inside][0] < end:
            total += min(end, other[inside][1]) - max(begin, other[inside][0])
            inside += 1
    return total


def _room(engine: PlayedEngine) -> tuple[int, int]:
    """More for an engine with fewer requests."""
    return engine.free_sequences, engine.free_tokens


def simulate(plan: RolloutPlan) -> BothTraces:
    """Simulate rollouts.

    Raises `ScenarioError` where an engine has no room for the longest request.
    """
    spec, server, place = plan.spec, plan.server, plan.place
    try:
        trace = played(spec, server, place, rules_of(spec))
        patient = played(spec, server, place, Rules()) if spec.partial else None
    except ScenarioError as error:
        raise ScenarioError(plan.scenario.locate(error.problems)) from None
    return BothTraces(trace, patient)


def _fresh(spec: RolloutSpec, count: int, iteration: int) -> Sequence[Sample]:
    return draw(spec, count, iteration)


def played(spec: RolloutSpec, server: Engine, place: Place, rules: Rules) -> RolloutTrace:
    """The rollouts of a scenario, played on so many engines under the rules.

    Raises `ScenarioError` where an engine has no room for the longest request.
    """
    fresh = partial(_fresh, spec)
    most = min(spec.requests, place.sequences * place.engines)
    table = step_table(server, max(1, -(-most // (place.engines * server.groups))))
    try:
        return play(fresh, spec.requests, table, place, rules, spec.iterations)
    except ValueError as error:
        fix = "give the engine more GPUs or a smaller cache, or write a `longest` of `written`"
        raise ScenarioError([Problem("TW181", f"{PATH}.engine", str(error), fix)]) from None
