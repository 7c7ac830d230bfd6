"""Families as sources of tasks for a run (`reference.rl.tasks`)."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rl.gym.family import family, item
from reference.rl.tasks import Task


def tasks(name: str, levels: Sequence[int], count: int, seed: int) -> list[Task]:
    """So many tasks of a family, its levels in turn (all where none is named), each of a seed of
    its own. Raises UsageError TW650 for a level that is not there."""
    chosen = tuple(levels) or tuple(range(1, len(family(name).levels) + 1))
    found: list[Task] = []
    for at in range(count):
        level, number = chosen[at % len(chosen)], seed * 1_000_000 + at // len(chosen)
        made = item(name, level, number)
        tags = (name, f"{name} {level}", *(f"{name} {tag}" for tag in made.tags))
        words = (f"{name}-{level}-{number}", name, made.environment)
        found.append(Task(*words, level=level, tags=tags))
    return found
