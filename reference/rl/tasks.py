"""The tasks of a run: by name, made the same in any process from their section.

    tasks:
      - {source: characters, count: 32, seed: 0}
      - {source: morse, levels: [1, 2], count: 64}
      - {source: "my_package.tasks:make", count: 100}

A source is a family of `reference.rl.gym`, whose levels may be chosen, or a function of a module,
`(count, seed) -> Sequence[RlTask]`, and each of its tasks is an environment
(`reference.agentic.environment`). Workers make the tasks again for themselves, so that no world has
to be sent to them.

Families as sources of family_tasks for a run (`reference.rl.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any, Final

from reference.agentic.environment import Environment
from reference.rl.gym.environments import family, item
from reference.rl.gym.environments import names as families
from twin.errors import Problem, UsageError
from twin.loading.tree import hint
from twin.spec.base import Count, Spec, Whole

SOURCES: Final[dict[str, str]] = {
    "characters": "reference.rl.toys:characters",
    "lengths": "reference.rl.toys:lengths",
    "sums": "reference.rl.toys:sums",
    "open": "reference.rl.toys:open_prompts",
}
"""Functions by the names that configurations use."""


class TasksSpec(Spec):
    """Tasks of one source."""

    source: str
    """A known source, or `module:function` of one's own."""
    count: Count = 32
    """Tasks."""
    seed: Whole = 0
    """Of which tasks they are."""
    levels: tuple[Count, ...] = ()
    """Of a family of the gym: those that are taken, in turn; empty: all."""
    options: Mapping[str, Any] = {}
    """What a `module:function` takes beside count and seed, by name."""


@dataclass(frozen=True, slots=True)
class RlTask:
    """A task and its environment."""

    name: str
    """Unique among all tasks of a run."""
    kind: str
    """Its group; bounds on tokens go by it."""
    environment: Environment[Any]
    level: int = 0
    """How hard its maker takes it to be."""
    tags: tuple[str, ...] = ()
    """What it exercises; sampling may raise those that were rarely drawn."""
    verifiable: bool = True
    """Whether its verdict is worth a reward; otherwise a critic ranks the responses."""


def tasks_of(specs: Sequence[TasksSpec]) -> dict[str, RlTask]:
    """All tasks by name, in order. Raises UsageError TW640 for a source that is not there, TW641
    for one without tasks, and TW650 for levels that it has not."""
    found: dict[str, RlTask] = {}
    for at, spec in enumerate(specs):
        made = _made(spec, f"tasks.{at}")
        if not made:
            message = f"`{spec.source}` makes no task"
            raise UsageError([Problem("TW641", f"tasks.{at}", message)])
        for task in made:
            name = f"{at}/{task.name}"
            found[name] = replace(task, name=name)
    return found


def _made(spec: TasksSpec, at: str) -> Sequence[RlTask]:
    make = _maker(spec, at)
    try:
        signature(make).bind(spec.count, spec.seed, **spec.options)
    except TypeError as error:
        message = f"`{spec.source}` does not take these: {error}"
        raise UsageError([Problem("TW640", f"{at}.options", message)]) from None
    return make(spec.count, spec.seed, **spec.options)


def _maker(spec: TasksSpec, at: str) -> Callable[..., Sequence[RlTask]]:
    source, path = spec.source, f"{at}.source"
    if source in families():
        return partial(family_tasks, source, spec.levels)
    if spec.levels:
        message, fix = f"`{source}` has no levels to choose from", "leave `levels` out"
        raise UsageError([Problem("TW650", f"{at}.levels", message, fix)])
    where = SOURCES.get(source, source)
    module, _, function = where.partition(":")
    if not function:
        fix = hint(source, (*SOURCES, *families()), "or write `module:function`")
        raise UsageError([Problem("TW640", path, f"no source of tasks is called `{source}`", fix)])
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        message = f"`{where}` cannot be imported: {error}"
        raise UsageError([Problem("TW640", path, message)]) from None


def family_tasks(name: str, levels: Sequence[int], count: int, seed: int) -> list[RlTask]:
    """So many tasks of a family, its levels in turn (all where none is named), each of a
    seed of its own. Raises UsageError TW650 for a level that is not there."""
    chosen = tuple(levels) or tuple(range(1, len(family(name).levels) + 1))
    tasks: list[RlTask] = []
    for at in range(count):
        level, number = chosen[at % len(chosen)], seed * 1_000_000 + at // len(chosen)
        made = item(name, level, number)
        tags = (name, f"{name} {level}", *(f"{name} {tag}" for tag in made.tags))
        id_ = f"{name}-{level}-{number}"
        tasks.append(RlTask(id_, name, made.environment, level=level, tags=tags))
    return tasks
