"""The data that a scenario wants generated, put on its plan: days and GPU-hours by the inference
model, what bounds them, and how far the ranges of their numbers reach.

The requests that rephrasing a corpus takes.

An excerpt is cut into pieces that are rewritten one after the other; each request reads the
instructions, what is rewritten so far, and its piece (Kimi K2's report, arXiv:2507.20534, figure
4). With a prefix cache only the last rewritten piece and the next piece are new: what was written
follows other tokens than it did when it was written, so it is prefilled once. Then a judge may read
both. An excerpt that is refused is made again, with the same chance: 1 / acceptance attempts.

The requests that trajectories of agents take.

Each turn the agent reads what came back, writes, and waits for its environment; a model may write
in place of tools and users; at the end a judge may read all of it. Of a task `candidates`
trajectories are made, each accepted with the same chance by itself, and the best is kept: a task
leaves one with probability 1 - (1 - acceptance)^candidates. (Kimi K2's report, arXiv:2507.20534,
section 3.1.1: trajectories are simulated with users and tools, and filtered by a judge.) While a
simulator writes, the agent's own cache is counted once only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Final

from twin.data.types import Generation, Job, JobRun, RequestGroup, RequestGroupRun
from twin.errors import Problem, ScenarioError
from twin.inference.curve import Request, pace
from twin.inference.engine import Engine, engine
from twin.inference.kv_capacity import room
from twin.loading.input_ranges import at_both_ends, spread
from twin.scenario import Scenario
from twin.spec.data import (
    CorpusSpec,
    DataSpec,
    RephrasingRecipe,
    TrajectoriesSpec,
    TrajectoryRecipe,
)

ROOTS: Final = (
    "data.engine",
    "data.rephrasing",
    "data.trajectories",
    "calibration",
    "cluster.fabric",
    "cluster.node.nic",
    "cluster.node.nvlink",
)
"""Sections whose ranges move the days of generation."""
_SHOWN: Final = 5
"""Numbers that are named, of those that move the days most."""
_LEAST: Final = 0.002
"""Changes below this are not named."""


def rephrasing_job(recipe: RephrasingRecipe, corpus: CorpusSpec, *, prefix_cache: bool) -> Job:
    """What it takes to rephrase a corpus as often as is written. The last piece of an excerpt
    counts as a part of one."""
    kept = corpus.tokens * corpus.rephrasings / recipe.excerpt
    attempts = kept / recipe.acceptance
    pieces = recipe.excerpt / recipe.piece
    asked = [RequestGroup("pieces", attempts * pieces, _piece(recipe, pieces, prefix_cache))]
    if recipe.check:
        both = recipe.excerpt * (1 + recipe.written)
        asked.append(RequestGroup("check", attempts, Request(both, 0.0, float(recipe.check))))
    written = corpus.tokens * corpus.rephrasings * recipe.written
    return Job(corpus.name, "rephrasing", tuple(asked), written, attempts, kept)


def _piece(recipe: RephrasingRecipe, pieces: float, prefix_cache: bool) -> Request:
    """The mean request of an excerpt of so many pieces."""
    written = recipe.piece * recipe.written
    before = written * (pieces - 1) / 2  # of this excerpt, mean over its pieces
    held = recipe.prompt + recipe.piece + written * pieces
    if not prefix_cache:
        return Request(recipe.prompt + before + recipe.piece, 0.0, written, held=held)
    last = written * (pieces - 1) / pieces  # the first piece has none before it
    return Request(recipe.piece + last, recipe.prompt + before - last, written, held=held)


def trajectories_job(spec: TrajectoriesSpec, *, prefix_cache: bool) -> Job:
    """What it takes until so many trajectories are kept."""
    recipe = spec.recipe
    leaves = 1.0 - (1.0 - recipe.acceptance) ** recipe.candidates
    attempts = spec.kept / leaves * recipe.candidates
    asked = [
        RequestGroup("turns", attempts * recipe.turns, _turn(recipe, prefix_cache), in_sandbox=True)
    ]
    if recipe.simulated:
        simulated = _simulated(recipe, prefix_cache)
        asked.append(RequestGroup("simulators", attempts * recipe.turns, simulated))
    if recipe.check:
        read = Request(_length(recipe), 0.0, float(recipe.check))
        asked.append(RequestGroup("check", attempts, read))
    return Job(
        recipe.name,
        "trajectories",
        tuple(asked),
        spec.kept * _length(recipe),
        attempts,
        float(spec.kept),
    )


def _length(recipe: TrajectoryRecipe) -> float:
    """Tokens of a whole trajectory: nothing comes back after the last turn."""
    return float(recipe.prompt + recipe.turns * recipe.written + (recipe.turns - 1) * recipe.read)


def _turn(recipe: TrajectoryRecipe, prefix_cache: bool) -> Request:
    """The mean turn of an agent. The first reads the prompt, the others what came back."""
    before = _before(recipe)
    new = (recipe.prompt + (recipe.turns - 1) * recipe.read) / recipe.turns
    if not prefix_cache:
        new = before + new
    cached = before if prefix_cache else 0.0
    length = _length(recipe)
    return Request(new, cached, float(recipe.written), recipe.latency, length)


def _simulated(recipe: TrajectoryRecipe, prefix_cache: bool) -> Request:
    """The mean request to whoever writes in place of tools and users: its own view of the
    trajectory is cached but for what the agent just wrote."""
    before, written = _before(recipe), float(recipe.written)
    new, cached = (written, before) if prefix_cache else (before + written, 0.0)
    return Request(new, cached, float(recipe.simulated))


def _before(recipe: TrajectoryRecipe) -> float:
    """Tokens of the trajectory that a turn finds cached, mean over the turns."""
    turns = recipe.turns
    whole = sum(
        recipe.prompt + turn * recipe.written + (turn - 1) * recipe.read for turn in range(1, turns)
    )
    return whole / turns


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
        jobs = _with_ranges(scenario, jobs)
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


def _with_ranges(scenario: Scenario, jobs: Sequence[JobRun]) -> tuple[JobRun, ...]:
    """The jobs, each with the range of its days and the numbers that move it most."""
    moves: list[dict[str, tuple[float, float]]] = [{} for _ in jobs]
    for path, *ends in at_both_ends(scenario, ROOTS, _days):
        for at, job in enumerate(jobs):
            low, high = (end[at] / job.days if end and job.days else 1.0 for end in ends)
            moves[at][path] = low, high
    return tuple(_with_range(job, own) for job, own in zip(jobs, moves, strict=True))


def _days(scenario: Scenario) -> list[float]:
    found = generation(scenario, ranges=False)
    return [job.days for job in found.jobs] if found else []


def _with_range(job: JobRun, moves: Mapping[str, tuple[float, float]]) -> JobRun:
    if not moves:
        return job
    low, high = spread(moves.values())
    order = sorted(moves.items(), key=lambda item: -abs(log(item[1][1]) - log(item[1][0])))
    named = [(path, *pair) for path, pair in order[:_SHOWN] if abs(log(pair[1] / pair[0])) > _LEAST]
    return replace(job, interval=(job.days * low, job.days * high), drivers=tuple(named))


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


def _part(
    asked: RequestGroup, server: Engine, groups: int, sandboxes: float | None
) -> RequestGroupRun:
    found = pace(server, asked.request, sandboxes if asked.in_sandbox else None)
    seconds = asked.count * found.seconds / groups / server.spec.utilisation
    return RequestGroupRun(asked, found, seconds)
