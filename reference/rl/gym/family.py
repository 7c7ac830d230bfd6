"""Families of verifiable tasks: what they are, and all of them by name.

A family is a module of `families` with a function `make` of a level and a seed. `families.yaml`
describes it and its levels, and holds its words.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from reference.agentic.environment import Environment, Turn
from reference.yaml_tables import yaml_table
from twin.errors import Problem, UsageError
from twin.loading.suggest import hint

Turns = tuple[Turn, ...]
"""The assistant's words and calls, turn by turn."""
_FAMILIES = "reference.rl.gym.families"


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
class TaskFamily:
    """Tasks of one kind, from easy to hard."""

    name: str
    about: str
    levels: tuple[str, ...]
    """What level 1 asks, level 2, and so on."""
    make: Callable[[int, int], Item]
    """The item of a level and a seed: equal ones give equal items."""


@cache
def names() -> tuple[str, ...]:
    """All families, in alphabetical order."""
    package = import_module(_FAMILIES)
    return tuple(sorted(module.name for module in pkgutil.iter_modules(package.__path__)))


@cache
def texts(name: str) -> Mapping[str, Any]:
    """The section of a family in `families.yaml`."""
    return yaml_table(Path(__file__).with_name("families.yaml"))[name]


def family(name: str) -> TaskFamily:
    """The family of this name. Raises UsageError TW658 where there is none."""
    if name not in names():
        message, fix = f"there is no family `{name}`", hint(name, names(), "name a family")
        raise UsageError([Problem("TW658", "tasks.source", message, fix)])
    said, make = texts(name), import_module(f"{_FAMILIES}.{name}").make
    return TaskFamily(name, said["about"], tuple(said["levels"]), make)


def item(name: str, level: int, seed: int) -> Item:
    """The item of a family, a level and a seed. Raises UsageError TW650 for a level that the family
    does not have."""
    levels = len(family(name).levels)
    if not 1 <= level <= levels:
        message = f"`{name}` has no level {level}"
        raise UsageError([Problem("TW650", "tasks.levels", message, f"it has 1 to {levels}")])
    return family(name).make(level, seed)


def level_numbers(text: str) -> tuple[int, ...]:
    """Levels as an option names them, such as `1,2`. Raises ValueError for others."""
    return tuple(int(part) for part in text.split(","))
