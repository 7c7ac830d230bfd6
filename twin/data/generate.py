"""The data that a scenario wants generated, put on its plan: days and GPU-hours by the inference
model, what bounds them, and how far the ranges of their numbers reach."""

from __future__ import annotations

from twin.data.ranges import reach
from twin.data.rephrase import rephrasing_job
from twin.data.trajectories import trajectories_job
from twin.data.types import Asked, Generation, Job, JobRun, Part
from twin.errors import Problem, ScenarioError
from twin.inference import Engine, engine, pace, room
from twin.scenario import Scenario
from twin.spec.data import DataSpec


def generation(scenario: Scenario, *, ranges: bool = True) -> Generation | None:
    """What generating its data takes; None where nothing has to be generated.

    Raises `ScenarioError` where the engine cannot be, or has no room for a sequence.
    """
    data = scenario.data
    if data is None or data.engine is None or not data.generates:
        return None
    try:
        server, gpus = _engine(scenario), _gpus(scenario, data)
        engines = gpus // server.spec.gpus
        jobs = tuple(_run(job, server, engines, gpus, data) for job in jobs_of(data))
    except ScenarioError as error:
        raise ScenarioError(scenario.locate(error.problems)) from None
    if ranges:
        jobs = reach(scenario, jobs, _jobs_alone)
    return Generation(
        jobs=jobs,
        model=server.model.name,
        engine=server.spec.name,
        engines=engines,
        gpus=gpus,
        idle_gpus=gpus - engines * server.spec.gpus,
        room=room(server),
    )


def jobs_of(data: DataSpec) -> tuple[Job, ...]:
    """Everything that has to be generated: corpora in their order, then trajectories."""
    assert data.engine is not None, "somebody generates it"
    found: list[Job] = []
    cached = data.engine.prefix_cache
    if data.rephrasing is not None:
        recipe = data.rephrasing.recipe
        found += [
            rephrasing_job(recipe, corpus, prefix_cache=cached)
            for corpus in data.rephrasing.corpora
        ]
    if data.trajectories is not None:
        found.append(trajectories_job(data.trajectories, prefix_cache=cached))
    return tuple(found)


def _jobs_alone(scenario: Scenario) -> tuple[JobRun, ...]:
    found = generation(scenario, ranges=False)
    return found.jobs if found else ()


def _engine(scenario: Scenario) -> Engine:
    data = scenario.data
    wanted = data.engine if data else None
    assert data is not None, "something is generated"
    assert wanted is not None, "somebody generates it"
    model = data.model or scenario.model
    return engine(wanted, model, scenario.cluster, scenario.calibration, "data.engine")


def _gpus(scenario: Scenario, data: DataSpec) -> int:
    """GPUs of the nodes that generate."""
    cluster, wanted = scenario.cluster, data.engine
    assert wanted is not None, "somebody generates it"
    nodes = cluster.nodes if data.nodes is None else data.nodes
    if nodes > cluster.nodes:
        message = f"{nodes} nodes are to generate data, and the cluster has {cluster.nodes}"
        fix = f"write at most {cluster.nodes}, or `null` for all"
        raise ScenarioError([Problem("TW183", "data.nodes", message, fix)])
    gpus = nodes * cluster.node.gpus
    if gpus < wanted.gpus:
        message = f"an engine has {wanted.gpus} GPUs, and the nodes that generate have {gpus}"
        raise ScenarioError([Problem("TW183", "data.nodes", message, "give it more nodes")])
    return gpus


def _run(job: Job, server: Engine, engines: int, gpus: int, data: DataSpec) -> JobRun:
    groups = engines * server.groups
    sandboxes = data.trajectories.sandboxes / groups if data.trajectories else None
    parts = tuple(_part(asked, server, groups, sandboxes) for asked in job.asked)
    return JobRun(job, parts, gpus)


def _part(asked: Asked, server: Engine, groups: int, sandboxes: float | None) -> Part:
    found = pace(server, asked.request, sandboxes if asked.in_sandbox else None)
    seconds = asked.count * found.seconds / groups / server.spec.utilisation
    return Part(asked, found, seconds)
