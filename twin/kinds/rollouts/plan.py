"""Scenario to plan of rollouts: an engine, how many of them, and the room that each has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from twin.errors import Problem, ScenarioError
from twin.inference.engine import Engine, engine
from twin.inference.kv_capacity import room
from twin.kinds.rollouts.types import NAME, Place, Rules
from twin.scenario import Scenario
from twin.spec.rollout import RolloutSpec

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
    except ScenarioError as error:
        raise ScenarioError(scenario.locate(error.problems)) from None
    place = place_of(spec, server, gpus // server.spec.gpus)
    return RolloutPlan(scenario, spec, server, place, gpus)


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
