"""The rollouts of a scenario, answered: how long an iteration's take, where engines spend it, how
long the tail is, and what partial rollouts gain over waiting for the last request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

from twin.errors import Problem, ScenarioError
from twin.inference import Engine, Room, engine, room
from twin.kinds.rollouts.caveats import caveats
from twin.kinds.rollouts.draw import draw
from twin.kinds.rollouts.pace import step_table
from twin.kinds.rollouts.play import play
from twin.kinds.rollouts.types import SPENT, Iteration, Place, Rules, Sample, Spent, Trace
from twin.loading import scenario_hash
from twin.planning.caveats import assumed_numbers
from twin.planning.types import Warning
from twin.reports.cost import hourly
from twin.reports.expect import FITS, Judgement, judge
from twin.reports.report import UNCALIBRATED
from twin.reports.summary import resolved
from twin.scenario import Scenario
from twin.spec.rollout import RolloutSpec

VERSION: Final = 1
"""Version of the JSON document."""
KIND: Final = "rollouts"
PATH: Final = "rl.rollout"
SHOWN: Final = 200
"""Moments of a timeline in the document."""


@dataclass(frozen=True, slots=True)
class RolloutAnswer:
    """What rollouts came to."""

    name: str
    hash: str
    scenario: Mapping[str, Any]
    """As a planner would write it: quantities are text with units."""
    trace: Trace
    patient: Trace | None
    """The same without partial rollouts; None where there are none to leave out."""
    place: Place
    gpus: int
    room: Room
    price: float | None
    """Dollars of a GPU for an hour; None where the scenario has none."""
    warnings: tuple[Warning, ...]
    expectations: tuple[Judgement, ...] = ()

    @property
    def unmeasured(self) -> tuple[Warning, ...]:
        """Why times lie outside of what was measured; empty where they do not."""
        return tuple(one for one in self.warnings if one.code in UNCALIBRATED)

    @property
    def fits(self) -> bool:
        """True: engines without room for the longest request are refused."""
        return True

    @property
    def settled(self) -> tuple[Iteration, ...]:
        """The later half of the iterations: the first has nothing to go on with."""
        return settled(self.trace)

    @property
    def seconds(self) -> float:
        """Seconds of an iteration's rollouts, mean of the settled ones."""
        return _mean_ns(self.settled) / 1e9

    @property
    def tokens_per_second(self) -> float:
        """Tokens that are written per second, of the settled iterations."""
        return _rate(self.settled)

    @property
    def idle(self) -> float:
        """Share of the engines' time in which they have nothing to do."""
        return self.spent["idle"]

    @property
    def spent(self) -> dict[Spent, float]:
        """Shares of the engines' time; they sum to one."""
        whole = sum(sum(one.spent_ns.values()) for one in self.settled)
        found: dict[Spent, float] = {}
        for key in SPENT:
            part = sum(one.spent_ns[key] for one in self.settled)
            found[key] = part / whole if whole else 0.0
        return found

    @property
    def tail(self) -> float:
        """Share of the time that passes after nine of ten requests are done."""
        length = sum(one.length_ns for one in self.settled)
        return sum(one.tail * one.length_ns for one in self.settled) / length if length else 0.0

    @property
    def kpis(self) -> dict[str, float | None]:
        """The key figures (`twin.spec.kpis.ROLLOUT_KPIS`)."""
        hours = self.gpus * self.seconds / 3600
        return {
            "rollout_seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_second_per_gpu": self.tokens_per_second / self.gpus,
            "tail_share": self.tail,
            "idle_share": self.idle,
            "cost_usd_of_rollouts": None if self.price is None else hours * self.price,
        }

    @property
    def gain(self) -> float | None:
        """How many times as many tokens per second partial rollouts write; None without them."""
        if self.patient is None:
            return None
        return self.tokens_per_second / _rate(settled(self.patient))

    def to_json(self) -> dict[str, Any]:
        """The versioned document."""
        return {
            "version": VERSION,
            "kind": KIND,
            "name": self.name,
            "hash": self.hash,
            "fits": self.fits,
            "kpis": self.kpis,
            "rollout_seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_second_per_gpu": self.tokens_per_second / self.gpus,
            "idle_fraction": self.idle,
            "spent": self.spent,
            "partial_gain": self.gain,
            "engines": self.place.engines,
            "gpus": self.gpus,
            "memory": self.room.to_json(),
            "events": self.trace.events,
            "iterations": [_iteration(one) for one in self.trace.iterations],
            "without_partial": _patient(self.patient),
            "calibrated": not self.unmeasured,
            "warnings": [asdict(one) for one in self.warnings],
            "expectations": [asdict(one) for one in self.expectations],
            "scenario": dict(self.scenario),
        }


def rollout(scenario: Scenario) -> RolloutAnswer:
    """Play the rollouts of a scenario.

    Raises `ScenarioError` where its engine cannot be, or has no room for the longest request.
    """
    try:
        return _rollout(scenario)
    except ScenarioError as error:
        raise ScenarioError(scenario.locate(error.problems)) from None


def check(scenario: Scenario) -> None:
    """Nothing, where the engines of a scenario's rollouts can be, or there are none.

    Raises `ScenarioError` where they cannot.
    """
    if scenario.rl is None:
        return
    try:
        server_of(scenario, scenario.rl.rollout)
    except ScenarioError as error:
        raise ScenarioError(scenario.locate(error.problems)) from None


def server_of(scenario: Scenario, spec: RolloutSpec) -> tuple[Engine, int]:
    """An engine, and the GPUs of the nodes that roll out.

    Raises `ScenarioError` where there can be none.
    """
    model = spec.model or scenario.model
    server = engine(spec.engine, model, scenario.cluster, scenario.calibration, f"{PATH}.engine")
    return server, _gpus(scenario, spec)


def _rollout(scenario: Scenario) -> RolloutAnswer:
    spec = scenario.rl.rollout if scenario.rl else None
    if spec is None:
        raise ScenarioError([Problem("TW185", "rl", "the scenario has no rollouts", "add `rl:`")])
    server, gpus = server_of(scenario, spec)
    place = place_of(spec, server, gpus // server.spec.gpus)
    prices = hourly(scenario.cost, scenario.cluster.node) if scenario.cost else {}
    found = RolloutAnswer(
        name=scenario.name,
        hash=scenario_hash(scenario),
        scenario=resolved(scenario),
        trace=played(spec, server, place, rules_of(spec)),
        patient=played(spec, server, place, Rules()) if spec.partial else None,
        place=place,
        gpus=gpus,
        room=room(server),
        price=sum(prices.values()) if prices else None,
        warnings=(*assumed_numbers(scenario), *caveats(scenario, server)),
    )
    return replace(found, expectations=judge(scenario.expect, {FITS: found.fits} | found.kpis))


def rules_of(spec: RolloutSpec) -> Rules:
    """When an iteration of a scenario ends."""
    own = spec.partial
    done = round(own.finished * spec.requests) if own and own.finished else None
    return Rules(done, own.at_most if own else None)


def _fresh(spec: RolloutSpec, count: int, iteration: int) -> Sequence[Sample]:
    return draw(spec, count, iteration)


def played(spec: RolloutSpec, server: Engine, place: Place, rules: Rules) -> Trace:
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


def place_of(spec: RolloutSpec, server: Engine, engines: int) -> Place:
    """The room of each of so many engines; its requests are spread evenly over its groups."""
    around, batch = spec.environment, server.spec.batch
    return Place(
        engines=engines,
        tokens=room(server).tokens * server.groups,
        sequences=(batch or spec.requests) * server.groups,
        sandboxes=around.sandboxes if around else None,
        keeps_cache=around.keeps_cache if around else True,
    )


def _gpus(scenario: Scenario, spec: RolloutSpec) -> int:
    """GPUs of the nodes that roll out."""
    cluster = scenario.cluster
    nodes = cluster.nodes if spec.nodes is None else spec.nodes
    gpus = nodes * cluster.node.gpus
    if nodes > cluster.nodes or gpus < spec.engine.gpus:
        message = (
            f"{nodes} nodes of {cluster.nodes} are to roll out, on engines of {spec.engine.gpus} "
            "GPUs"
        )
        fix = f"write from {-(-spec.engine.gpus // cluster.node.gpus)} to {cluster.nodes}"
        raise ScenarioError([Problem("TW183", f"{PATH}.nodes", message, fix)])
    return gpus


def settled(trace: Trace) -> tuple[Iteration, ...]:
    """The later half of the iterations: the first has nothing to go on with."""
    return trace.iterations[len(trace.iterations) // 2 :]


def _mean_ns(iterations: Sequence[Iteration]) -> float:
    return sum(one.length_ns for one in iterations) / len(iterations)


def _rate(iterations: Sequence[Iteration]) -> float:
    length = sum(one.length_ns for one in iterations)
    return 1e9 * sum(one.written for one in iterations) / length if length else 0.0


def _iteration(one: Iteration) -> dict[str, Any]:
    step = max(1, -(-len(one.loads) // SHOWN))
    loads = one.loads[::step]
    return {
        "seconds": one.length_ns / 1e9,
        "done": len(one.done_ns),
        "carried": one.carried,
        "written_tokens": one.written,
        "prefilled_tokens": one.prefilled,
        "again_tokens": one.again,
        "tail": one.tail,
        "done_seconds": {f"{share:.0%}": _seconds(one.at(share)) for share in (0.5, 0.9, 0.99, 1)},
        "spent_seconds": {key: ns / 1e9 for key, ns in one.spent_ns.items()},
        "timeline": {
            "seconds": [(load.ns - one.begin_ns) / 1e9 for load in loads],
            "running": [load.running for load in loads],
            "waiting": [load.waiting for load in loads],
            "queued": [load.queued for load in loads],
        },
    }


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _patient(trace: Trace | None) -> dict[str, Any] | None:
    if trace is None:
        return None
    later = settled(trace)
    return {"rollout_seconds": _mean_ns(later) / 1e9, "tokens_per_second": _rate(later)}
