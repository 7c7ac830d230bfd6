"""The requests that trajectories of agents take.

Each turn the agent reads what came back, writes, and waits for its environment; a model may write
in place of tools and users; at the end a judge may read all of it. Of a task `candidates`
trajectories are made, each accepted with the same chance by itself, and the best is kept: a task
leaves one with probability 1 - (1 - acceptance)^candidates. (Kimi K2's report, arXiv:2507.20534,
section 3.1.1: trajectories are simulated with users and tools, and filtered by a judge.) While a
simulator writes, the agent's own cache is counted once only.
"""

from __future__ import annotations

from twin.data.types import Asked, Job
from twin.inference import Request
from twin.spec.data import TrajectoriesSpec, TrajectoryRecipe


def trajectories_job(spec: TrajectoriesSpec, *, prefix_cache: bool) -> Job:
    """What it takes until so many trajectories are kept."""
    recipe = spec.recipe
    leaves = 1.0 - (1.0 - recipe.acceptance) ** recipe.candidates
    attempts = spec.kept / leaves * recipe.candidates
    asked = [Asked("turns", attempts * recipe.turns, _turn(recipe, prefix_cache), in_sandbox=True)]
    if recipe.simulated:
        simulated = _simulated(recipe, prefix_cache)
        asked.append(Asked("simulators", attempts * recipe.turns, simulated))
    if recipe.check:
        read = Request(_length(recipe), 0.0, float(recipe.check))
        asked.append(Asked("check", attempts, read))
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
