"""Tasks of `reference.agentic` as cases: each function makes the environment of a case's row.

A row holds a seed and no task: tasks are those that the generators make of it now.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from reference.agentic.code.environment import CodeEnvironment
from reference.agentic.code.generate import generate as code_task
from reference.agentic.code.generate import hints as code_hints
from reference.agentic.run import preset_scene
from reference.agentic.simulated import Simulated
from reference.agentic.software.environment import SoftwareEnvironment
from reference.agentic.software.generate import generate as repository_of
from reference.agentic.software.generate import hints as software_hints
from twin.errors import Problem, UsageError


def errand(row: Mapping[str, Any]) -> Simulated:
    """Task `number`, from 0, of those of a synthesis preset and seed whose tools belong to a split
    (`train` or `held_out`), with simulated tools and user. Raises UsageError TW585 where there are
    fewer."""
    scene = preset_scene(row["preset"], row["seed"])
    left = row["number"]
    for at in range(scene.spec.most_tasks):
        if scene.agents[at % len(scene.agents)].split != row["split"]:
            continue
        task = _task(scene.spec.seed, row["preset"], at)
        if task is not None:
            if not left:
                return task
            left -= 1
    message = f"the preset `{row['preset']}` has no task {row['number']} of `{row['split']}`"
    raise UsageError([Problem("TW585", "world", message, "ask for an earlier one")])


def function(row: Mapping[str, Any]) -> CodeEnvironment:
    """A function to write, with hidden tests, of a seed."""
    task = code_task(row["seed"])
    return CodeEnvironment(task, hints=code_hints(task, row["seed"]))


def repository(row: Mapping[str, Any]) -> SoftwareEnvironment:
    """A repository with an issue to mend, with hidden tests, of a seed."""
    made = repository_of(row["seed"])
    return SoftwareEnvironment(made, hints=software_hints(made, row["seed"]))


@cache
def _task(seed: int, preset: str, at: int) -> Simulated | None:
    return preset_scene(preset, seed).environment(at)
