"""The nouns of rollouts: what is asked, where it runs, the rules of an iteration, what happened.

Scenario to plan of rollouts: an engine, how many of them, and the room that each has.

Requests drawn from their distributions: same seed, same requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log
from typing import ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.errors import Problem, ScenarioError
from twin.inference.engine import Engine, engine
from twin.inference.kv_capacity import room
from twin.kinds.rollouts.engine import Spent
from twin.kinds.rollouts.prefill import Prefills, prefills
from twin.scenario import Scenario
from twin.spec.rollout import (
    Constant,
    EnvironmentSpec,
    Histogram,
    Lengths,
    LogNormal,
    Pareto,
    RolloutSpec,
)

NAME: Final = "rollouts"
"""Of the kind that these nouns are of."""

SPENT: Final[dict[Spent, str]] = {
    "decode": "writing",
    "prefill": "prompts, answers of environments, and caches that are made again",
    "idle": "nothing to do: waiting for environments, or for the last requests elsewhere",
}
"""How an engine spends its time, in words."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: tokens of its prompt, tokens that each turn writes, tokens that come back after
    each turn but the last, and nanoseconds until they do."""

    prompt: int
    written: tuple[int, ...]
    read: tuple[int, ...] = ()
    waits_ns: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that it writes."""
        return sum(self.written)

    @property
    def longest(self) -> int:
        """Tokens of its cache at the end."""
        return self.prompt + self.tokens + sum(self.read)


@dataclass(frozen=True, slots=True)
class Place:
    """The engines: how many, and tokens of cache and sequences that each has room for."""

    engines: int
    tokens: int
    sequences: int
    sandboxes: int | None = None
    """Environments at a time, over all engines; None: as many as are asked for."""
    keeps_cache: bool = True
    """Whether a request that waits for its environment keeps its room."""
    preempts: bool = False
    """Whether requests get room for what they have now, and may lose it again."""
    prefills: Prefills | None = None
    """Engines that only prefill; None: each prefills its own prompts."""
    most: int | None = None
    """Requests that write at a time, beside those whose prompts are prefilled elsewhere."""
    arrivals: float | None = None
    """Requests that come per second; None: all are there at once."""
    seed: int = 0
    """Of arrivals."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When an iteration ends: once this many requests are done, and with at most so many tokens of
    each; None: with the last one."""

    done: int | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests are in which state, from a moment on."""

    ns: int
    running: int
    waiting: int
    """For an environment."""
    queued: int
    """For room on an engine, or for a sandbox."""


@dataclass(frozen=True, slots=True)
class RolloutIteration:
    """One iteration as it was played."""

    begin_ns: int
    end_ns: int
    done_ns: tuple[int, ...]
    """When requests were done, in order."""
    carried: int
    """Requests that the next iteration goes on with."""
    written: int
    """Tokens that were written."""
    prefilled: int
    """Tokens that were prefilled, those made again among them."""
    again: int
    """Tokens whose cache was made again, since the policy has changed or the room was given up."""
    spent_ns: Mapping[Spent, int]
    """Of all engines together; sums to engines x length."""
    loads: tuple[Load, ...] = ()
    lengths: tuple[int, ...] = ()
    """Tokens of the requests that were done, prompts and answers of environments included, in the
    order in which they were begun: who is done late is no sooner or later in training."""
    first_ns: tuple[int, ...] = ()
    """From the arrival of a request to its first token, where these are asked for."""
    next_ns: tuple[float, ...] = ()
    """Per further token of each request that was done in one turn."""
    pool_ns: int = 0
    """Of all engines that only prefill, at work."""
    moving_ns: int = 0
    """Of all caches on their way, waits for a free NIC included."""
    away_ns: int = 0
    """Of the engines' idle time that in which some request waited for its environment."""

    @property
    def length_ns(self) -> int:
        """Nanoseconds from begin to end."""
        return self.end_ns - self.begin_ns

    @property
    def tokens_per_second(self) -> float:
        """Tokens written per second, over all engines."""
        return self.written * 1e9 / self.length_ns if self.length_ns else 0.0

    def at(self, share: float) -> int | None:
        """Nanoseconds from the begin until so many of the requests that were done were; None where
        none was."""
        if not self.done_ns:
            return None
        place = min(len(self.done_ns), max(1, round(share * len(self.done_ns)))) - 1
        return self.done_ns[place] - self.begin_ns

    @property
    def tail(self) -> float:
        """Share of the iteration that is left once nine of ten requests are done: the long tail."""
        nine = self.at(0.9)
        return 0.0 if nine is None or not self.length_ns else 1.0 - nine / self.length_ns


@dataclass(frozen=True, slots=True)
class RolloutTrace:
    """All iterations, in order; the requests that were done, with how many tokens; those that are
    left, with what they have written."""

    iterations: tuple[RolloutIteration, ...]
    done: Mapping[int, int] = field(default_factory=dict[int, int])
    left: Mapping[int, int] = field(default_factory=dict[int, int])
    events: int = 0

    @property
    def written(self) -> int:
        """Tokens of all iterations."""
        return sum(one.written for one in self.iterations)

    @property
    def length_ns(self) -> int:
        """Nanoseconds of all iterations."""
        return sum(one.length_ns for one in self.iterations)


@dataclass(frozen=True, slots=True)
class BothTraces:
    """Rollouts as they are, and without partial ones."""

    kind: ClassVar[str] = NAME

    trace: RolloutTrace
    patient: RolloutTrace | None
    """None where there are no partial rollouts to leave out."""


PATH: Final = "rl.rollout"


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """The resolved rollouts: `server` is one engine, `place` the room that each of them has, `gpus`
    those of the nodes that roll out."""

    kind: ClassVar[str] = NAME

    scenario: Scenario
    spec: RolloutSpec
    server: Engine
    place: Place
    gpus: int


def plan(scenario: Scenario) -> RolloutPlan:
    """The resolved rollouts of a scenario.

    Raises `ScenarioError` where its engine cannot be.
    """
    spec = scenario.rl.rollout if scenario.rl else None
    if spec is None:
        raise ScenarioError([Problem("TW185", "rl", "the scenario has no rollouts", "add `rl:`")])
    try:
        server, gpus = server_of(scenario, spec)
        pool = _pool(scenario, spec, server)
    except ScenarioError as error:
        raise ScenarioError(scenario.locate(error.problems)) from None
    own = gpus - (spec.prefill.nodes * scenario.cluster.node.gpus if spec.prefill else 0)
    place = place_of(spec, server, own // server.spec.gpus)
    if pool:
        # A prompt gets room before it is prefilled, and one of `batch` places when its cache comes.
        most = server.spec.batch and server.spec.batch * server.groups
        place = replace(place, prefills=pool, preempts=False, most=most, sequences=spec.requests)
    return RolloutPlan(scenario, spec, server, place, gpus)


def _pool(scenario: Scenario, spec: RolloutSpec, server: Engine) -> Prefills | None:
    """The engines that only prefill.

    Raises `ScenarioError` where there can be none.
    """
    if spec.prefill is None:
        return None
    path, model = f"{PATH}.prefill.engine", spec.model or scenario.model
    own = engine(spec.prefill.engine, model, scenario.cluster, scenario.calibration, path)
    engines = spec.prefill.nodes * scenario.cluster.node.gpus // own.spec.gpus
    if not engines or own.cache_element != server.cache_element:
        message = f"{spec.prefill.nodes} nodes hold no engine of {own.spec.gpus} GPUs"
        fix = f"write at least {-(-own.spec.gpus // scenario.cluster.node.gpus)}"
        if engines:
            message = f"caches in {own.spec.cache} go to engines that keep {server.spec.cache}"
            fix = f"write `cache: {server.spec.cache}`"
        at = f"{path}.cache" if engines else f"{PATH}.prefill.nodes"
        raise ScenarioError([Problem("TW183", at, message, fix)])
    return prefills(own, server, engines)


def server_of(scenario: Scenario, spec: RolloutSpec) -> tuple[Engine, int]:
    """An engine, and the GPUs of the nodes that roll out.

    Raises `ScenarioError` where there can be none.
    """
    model = spec.model or scenario.model
    server = engine(spec.engine, model, scenario.cluster, scenario.calibration, f"{PATH}.engine")
    return server, _gpus(scenario, spec)


def rules_of(spec: RolloutSpec) -> Rules:
    """When an iteration of a scenario ends."""
    own = spec.partial
    done = round(own.finished * spec.requests) if own and own.finished else None
    return Rules(done, own.at_most if own else None)


def place_of(spec: RolloutSpec, server: Engine, engines: int) -> Place:
    """The room of each of so many engines; its requests are spread evenly over its groups."""
    around, batch = spec.environment, server.spec.batch
    return Place(
        engines=engines,
        tokens=room(server).tokens * server.groups,
        sequences=(batch or spec.requests) * server.groups,
        sandboxes=around.sandboxes if around else None,
        keeps_cache=around.keeps_cache if around else True,
        arrivals=spec.arrivals,
        seed=spec.seed,
        preempts=around is None and bool(server.spec.software and server.spec.software.preempts),
    )


def _gpus(scenario: Scenario, spec: RolloutSpec) -> int:
    """GPUs of the nodes that roll out."""
    cluster = scenario.cluster
    nodes = cluster.nodes if spec.nodes is None else spec.nodes
    gpus = nodes * cluster.node.gpus
    writes = gpus - (spec.prefill.nodes * cluster.node.gpus if spec.prefill else 0)
    if nodes > cluster.nodes or writes < spec.engine.gpus:
        message = (
            f"{writes // cluster.node.gpus} nodes of {cluster.nodes} are to roll out, on engines "
            f"of {spec.engine.gpus} GPUs"
        )
        least = (gpus - writes) // cluster.node.gpus - (-spec.engine.gpus // cluster.node.gpus)
        fix = f"write from {least} to {cluster.nodes}"
        raise ScenarioError([Problem("TW183", f"{PATH}.nodes", message, fix)])
    return gpus


Whole: TypeAlias = NDArray[np.int64]


def draw(spec: RolloutSpec, count: int, seed: int) -> tuple[Sample, ...]:
    """So many requests. What is written is spread evenly over the turns, each of which writes at
    least one token."""
    dice = np.random.default_rng([spec.seed, seed])
    prompts = numbers(spec.prompt, count, dice)
    turns = numbers(spec.turns, count, dice)
    written = np.maximum(numbers(spec.written, count, dice), turns)
    waits = _waits(spec.environment, int(turns.sum()), dice)
    found: list[Sample] = []
    used = 0
    for prompt, tokens, parts in zip(prompts, written, turns, strict=True):
        between = int(parts) - 1
        latencies = tuple(int(one) for one in waits[used : used + between])
        used += between
        read = (spec.read,) * between
        found.append(Sample(int(prompt), _parts(int(tokens), int(parts)), read, latencies))
    return tuple(found)


def numbers(lengths: Lengths, count: int, dice: np.random.Generator) -> Whole:
    """So many whole numbers of a distribution, each at least 1."""
    match lengths:
        case Constant():
            drawn = np.full(count, lengths.each)
        case LogNormal():
            middle = log(lengths.mean) - lengths.sigma**2 / 2
            drawn = np.minimum(np.exp(dice.normal(middle, lengths.sigma, count)), lengths.longest)
        case Pareto():
            drawn = lengths.least * (1.0 - dice.random(count)) ** (-1.0 / lengths.shape)
            drawn = np.minimum(drawn, lengths.longest)
        case Histogram():
            edges, weights = np.array(lengths.edges), np.array(lengths.counts, dtype=float)
            bins = dice.choice(len(weights), count, p=weights / weights.sum())
            drawn = edges[bins] + dice.random(count) * (edges[bins + 1] - edges[bins])
    return np.maximum(1, np.rint(drawn)).astype(np.int64)


def _waits(spec: EnvironmentSpec | None, count: int, dice: np.random.Generator) -> Whole:
    """Nanoseconds of so many answers."""
    if spec is None:
        return np.zeros(count, dtype=np.int64)
    drawn = spec.latency * np.exp(dice.normal(0.0, spec.sigma, count))
    return np.rint(1e9 * np.minimum(drawn, spec.longest)).astype(np.int64)


def _parts(tokens: int, parts: int) -> tuple[int, ...]:
    each, more = divmod(tokens, parts)
    return (each + 1,) * more + (each,) * (parts - more)
