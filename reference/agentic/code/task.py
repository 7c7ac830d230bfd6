"""A programming task: one function to write, examples that are shown, and tests that are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1


@dataclass(frozen=True, slots=True)
class Example:
    """Arguments of one call, and the value that is right for them."""

    arguments: tuple[Any, ...]
    expected: Any

    def call(self, entry: str) -> str:
        """The call as Python text; the arguments are plain values."""
        return f"{entry}({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked, and what decides."""

    id: str
    entry: str
    """Name of the function."""
    signature: str
    statement: str
    examples: tuple[Example, ...]
    """Shown to the model."""
    hidden: tuple[Example, ...]
    """They alone decide; none has the arguments of a shown one."""
    difficulty: int
    """From 1 to 5, as its writer sees it; what models find hard is measured by pass@k."""
    tags: tuple[str, ...] = ()
    solution: str = ""
    """A text that passes all; empty where none is known."""
    tolerance: float = 0.0
    """By which floats may differ, relative or absolute."""


def task_json(task: Task) -> dict[str, Any]:
    """A task as one JSON object; sets and tuples become lists."""
    return {
        "version": VERSION,
        "id": task.id,
        "entry": task.entry,
        "signature": task.signature,
        "statement": task.statement,
        "examples": [[list(one.arguments), one.expected] for one in task.examples],
        "hidden": [[list(one.arguments), one.expected] for one in task.hidden],
        "difficulty": task.difficulty,
        "tags": list(task.tags),
        "solution": task.solution,
        "tolerance": task.tolerance,
    }


def task_of(row: Mapping[str, Any]) -> Task:
    """The task that `task_json` made this of. Raises KeyError, TypeError or ValueError for what is
    none."""
    examples, hidden = (
        tuple(Example(tuple(arguments), expected) for arguments, expected in row[name])
        for name in ("examples", "hidden")
    )
    if not hidden:
        raise ValueError("a task needs hidden tests")
    return Task(
        id=str(row["id"]),
        entry=str(row["entry"]),
        signature=str(row["signature"]),
        statement=str(row["statement"]),
        examples=examples,
        hidden=hidden,
        difficulty=int(row["difficulty"]),
        tags=tuple(row["tags"]),
        solution=str(row["solution"]),
        tolerance=float(row.get("tolerance", 0.0)),
    )
