"""What a family of verifiable tasks is, and all of them by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from reference.agentic.environment import Environment
from reference.agentic.play import Turn
from twin.errors import Problem, UsageError
from twin.loading.suggest import hint

Turns = tuple[Turn, ...]
"""What the assistant says and calls, turn by turn."""


@dataclass(frozen=True, slots=True)
class Item:
    """One task of a family."""

    environment: Environment[Any]
    solve: Callable[[], Turns]
    """The turns of an oracle: reward 1."""
    hacks: Callable[[], Mapping[str, Turns]]
    """Turns that look like a solution, by the name of the trick: reward 0."""
    tags: tuple[str, ...]
    """What it exercises; sampling may raise tags that were rarely drawn."""


@dataclass(frozen=True, slots=True)
class Family:
    """Tasks of one kind, from easy to hard."""

    name: str
    about: str
    levels: tuple[str, ...]
    """What level 1 asks, level 2, and so on."""
    make: Callable[[int, int], Item]
    """The item of a level and a seed: equal ones give equal items."""


@cache
def names() -> tuple[str, ...]:
    """All families, in the order of the alphabet."""
    package = importlib.import_module("reference.rl.gym.families")
    return tuple(sorted(one.name for one in pkgutil.iter_modules(package.__path__)))


def family(name: str) -> Family:
    """The family of this name, one of `names()`. Raises UsageError TW658 for another."""
    if name not in names():
        message, fix = f"there is no family `{name}`", hint(name, names(), "name a family")
        raise UsageError([Problem("TW658", "tasks.source", message, fix)])
    return importlib.import_module(f"reference.rl.gym.families.{name}").FAMILY


def item(name: str, level: int, seed: int) -> Item:
    """The item of a family, a level and a seed. Raises UsageError TW650 for a level that the family
    has not."""
    found = family(name)
    if not 1 <= level <= len(found.levels):
        message = f"`{name}` has no level {level}"
        fix = f"it has 1 to {len(found.levels)}"
        raise UsageError([Problem("TW650", "tasks.levels", message, fix)])
    return found.make(level, seed)
