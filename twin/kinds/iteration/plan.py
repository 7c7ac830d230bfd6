"""Scenario to plan of an iteration: who has which GPUs, and what is in memory when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import floor
from typing import Any, Final

from twin.engine import plan as plan_step
from twin.errors import Problem, ScenarioError
from twin.inference.engine import Engine
from twin.inference.kv_capacity import KvCapacity, room
from twin.kinds.iteration.training import copy_ns, states_of, swap_ns, switch
from twin.kinds.iteration.types import Fit, IterationPlan, Switch
from twin.kinds.rollouts.plan import server_of
from twin.kinds.rollouts.report import caveats
from twin.kinds.weight_update.plan import UpdatePlan
from twin.kinds.weight_update.plan import plan as plan_update
from twin.planning.types import Plan, Warning
from twin.scenario import Scenario, UpdateScenario
from twin.spec.iteration import IterationSpec
from twin.spec.rollout import RolloutSpec

PATH: Final = "rl.iteration"
UPDATE: Final = f"{PATH}.update"


def plan(scenario: Scenario) -> IterationPlan:
    """The resolved iteration of a scenario.

    Raises `ScenarioError` where it cannot be as written; carries every problem.
    """
    try:
        return _plan(scenario)
    except ScenarioError as error:
        raise ScenarioError(scenario.locate(error.problems)) from None


def _plan(scenario: Scenario) -> IterationPlan:
    spec = scenario.rl.iteration if scenario.rl else None
    if scenario.rl is None or spec is None:
        message = "the scenario has no iteration of reinforcement learning"
        raise ScenarioError([Problem("TW187", "rl", message, "add `rl.iteration`")])
    rollouts = _rollouts(scenario, scenario.rl.rollout, spec)
    server, gpus = server_of(scenario, rollouts)
    if found := _problems(scenario, spec, rollouts):
        raise ScenarioError(found)
    trainer = plan_step(trainer_of(scenario, spec))
    update = _update(scenario, spec, gpus)
    own = _awake(room(server), spec, trainer)
    colocated = spec.mode == "colocated"
    return IterationPlan(
        scenario=scenario,
        spec=spec,
        rollouts=rollouts,
        trainer=trainer,
        server=server,
        room=own,
        engines=gpus // server.spec.gpus,
        rollout_gpus=gpus,
        update=update,
        switch=switch(trainer, spec.unload) if spec.offload else Switch(0.0, 0, 0),
        backup_ns=copy_ns(scenario.cluster, own.weights) if spec.backup and colocated else 0,
        swap_ns=swap_ns(trainer) if spec.swap_reference and spec.scores > 1 else 0,
        handing_ns=0
        if colocated or spec.update.source == "device"
        else copy_ns(scenario.cluster, update.payload / trainer.scenario.cluster.gpus),
        fits=tuple(_fits(spec, trainer, own, update)),
        warnings=tuple(_warnings(spec, trainer, server, update)),
    )


def trainer_of(scenario: Scenario, spec: IterationSpec) -> Scenario:
    """The training run on the trainers' nodes, without the rest."""
    cluster = scenario.cluster
    nodes = cluster.nodes - (spec.rollout_nodes or 0)
    changed: dict[str, Any] = {
        "cluster": cluster.model_copy(update={"nodes": nodes}),
        "rl": None,
        "expect": (),
    }
    return scenario.model_copy(update=changed)


def _rollouts(scenario: Scenario, rollouts: RolloutSpec, spec: IterationSpec) -> RolloutSpec:
    """The rollouts, on the nodes that the iteration gives them."""
    path = f"{PATH}.rollout_nodes"
    nodes, most = spec.rollout_nodes, scenario.cluster.nodes
    if rollouts.nodes is not None:
        message = "an iteration says itself which nodes roll out"
        fix = "write `rl.iteration.rollout_nodes`, and no `rl.rollout.nodes`"
        raise ScenarioError([Problem("TW187", "rl.rollout.nodes", message, fix)])
    if spec.mode == "colocated":
        return rollouts
    if nodes is None or nodes >= most:
        given = "no nodes" if nodes is None else f"{nodes} nodes of {most}"
        message = f"{given} for rollouts leave none, or all, to the trainers"
        raise ScenarioError([Problem("TW187", path, message, f"write from 1 to {most - 1}")])
    return rollouts.model_copy(update={"nodes": nodes})


def _problems(scenario: Scenario, spec: IterationSpec, rollouts: RolloutSpec) -> list[Problem]:
    found: list[Problem] = []
    engine, update = rollouts.engine, spec.update
    if update.replica.gpus != engine.gpus:
        message = f"an instance of {update.replica.gpus} GPUs is not the engine's {engine.gpus}"
        fix = f"write `{{gpus: {engine.gpus}}}`"
        found.append(Problem("TW188", f"{UPDATE}.replica.gpus", message, fix))
    if update.precision == "fp8" != engine.precision:
        message = f"engines hold {engine.precision}, and the update brings fp8"
        fix = f"write `{engine.precision}`"
        found.append(Problem("TW188", f"{UPDATE}.precision", message, fix))
    for name in ("prefill", "arrivals"):
        if getattr(rollouts, name) is not None:
            message = f"`{name}` is of rollouts alone, or of a service"
            found.append(Problem("TW187", f"rl.rollout.{name}", message, "leave it out"))
    if scenario.phases:
        message = "an iteration has one trainer, and this run has phases"
        found.append(Problem("TW187", "phases", message, "leave the phases out"))
    if spec.mode == "one_step_off" and rollouts.iterations == 1 and rollouts.partial:
        message = "partial rollouts need some iterations to settle"
        found.append(Problem("TW187", "rl.rollout.iterations", message, "write at least 3"))
    return found


def _update(scenario: Scenario, spec: IterationSpec, gpus: int) -> UpdatePlan:
    """The update of the engines' GPUs."""
    cluster = scenario.cluster
    nodes = cluster.nodes if spec.rollout_nodes is None else spec.rollout_nodes
    rollouts = scenario.rl.rollout if scenario.rl else None
    own = (rollouts.model if rollouts else None) or scenario.model
    made = UpdateScenario.model_validate(
        {
            "schema": scenario.schema_version,
            "name": scenario.name,
            "model": own,
            "cluster": cluster.model_copy(update={"nodes": nodes}),
            "calibration": scenario.calibration,
            "weight_update": _whole(spec, gpus),
        }
    )
    try:
        return plan_update(made)
    except ScenarioError as error:
        raise ScenarioError(
            replace(one, path=f"{PATH}.{_inside(one.path)}", origin=None) for one in error.problems
        ) from None


def _whole(spec: IterationSpec, gpus: int) -> Any:
    """The update; of GPUs that fill no whole engines the rest takes part all the same."""
    own = spec.update
    if gpus % own.replica.gpus == 0:
        return own
    return own.model_copy(update={"replica": own.replica.model_copy(update={"gpus": gpus})})


def _inside(path: str) -> str:
    """Where the update's section stands in an iteration."""
    return path.replace("weight_update", "update", 1)


def _awake(own: KvCapacity, spec: IterationSpec, trainer: Plan) -> KvCapacity:
    """An engine's memory beside a trainer that sleeps, and whose states may have stayed."""
    if spec.mode != "colocated":
        return own
    stayed = 0.0 if spec.offload else _states(trainer)
    return replace(own, reserve=own.reserve + spec.asleep + stayed)


def _states(trainer: Plan) -> float:
    """Of the fullest GPU."""
    return max(states_of(stage) for stage in trainer.memory.stages)


def cache_tokens(plan: IterationPlan) -> int:
    """Tokens for which an engine has room, all of its groups together."""
    own = plan.room
    return max(0, floor(own.cache / own.per_token)) * plan.server.groups


def _fits(spec: IterationSpec, trainer: Plan, own: KvCapacity, update: UpdatePlan) -> Iterable[Fit]:
    memory, colocated = trainer.memory, spec.mode == "colocated"
    asleep = spec.asleep if colocated else 0.0
    beside = " beside sleeping engines" if colocated else ""
    yield Fit(f"trainer{beside}", memory.peak.peak_bytes + asleep, memory.budget)
    yield Fit("engine, without caches", own.weights + own.passes, own.capacity - own.reserve)
    stayed = 0.0 if spec.offload or not colocated else _states(trainer)
    # Engines quantise what they load: they never hold more than their own weights.
    more = max(0.0, update.held - own.weights) if spec.update.precision == "bf16" else 0.0
    needed = update.memory.device_bytes - more + asleep + stayed
    yield Fit("weight update", needed, update.memory.budget)
    node = trainer.scenario.cluster.node
    host = memory.host_per_node
    if colocated:
        host += node.gpus * (_states(trainer) if spec.offload else 0.0)
        host += update.memory.host_bytes
    yield Fit("host memory of a trainer's node", host, node.host.memory)


def _warnings(
    spec: IterationSpec, trainer: Plan, server: Engine, update: UpdatePlan
) -> Iterable[Warning]:
    yield from trainer.warnings
    yield from update.warnings
    yield from caveats(trainer.scenario, server)
    if server.model.name != trainer.scenario.model.name:
        text = "Engines roll out another model than the one that is trained."
        yield Warning("rollouts-of-another-model", text)
    if trainer.scenario.train.lora is not None:
        text = (
            "The weight update sends all weights, as where adapters are added to them first. An "
            "engine that loads adapters gets those alone, which takes less time."
        )
        yield Warning("adapters-sent-whole", text)
    if spec.mode != "colocated":
        text = (
            "New weights go from trainers to engines of their own: as if trainers had left them in "
            "the hosts of the engines' nodes. No measured row was fitted."
        )
        yield Warning("update-between-nodes", text)
