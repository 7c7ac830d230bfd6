"""A programming task: one function to write, examples that are shown, and tests that are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1


@dataclass(frozen=True, slots=True)
class CallExample:
    """Arguments of one call, and the value that is right for them."""

    arguments: tuple[Any, ...]
    expected: Any

    def call(self, entry: str) -> str:
        """The call as Python text; the arguments are plain values."""
        return f"{entry}({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True, slots=True)
class CodeTask:
    """What the model is asked, and the tests that decide."""

    id: str
    entry: str
    """Name of the function."""
    signature: str
    statement: str
    examples: tuple[CallExample, ...]
    """Shown to the model."""
    hidden: tuple[CallExample, ...]
    """The tests that decide; none has the arguments of an example."""
    difficulty: int
    """From 1 to 5, as its author sees it; pass@k measures what models find hard."""
    tags: tuple[str, ...] = ()
    solution: str = ""
    """A text that passes all; empty where none is known."""
    tolerance: float = 0.0
    """By which floats may differ, relative or absolute."""


def task_json(task: CodeTask) -> dict[str, Any]:
    """A task as one JSON object; sets and tuples become lists."""
    return {
        "version": VERSION,
        "id": task.id,
        "entry": task.entry,
        "signature": task.signature,
        "statement": task.statement,
        "examples": [[list(example.arguments), example.expected] for example in task.examples],
        "hidden": [[list(test.arguments), test.expected] for test in task.hidden],
        "difficulty": task.difficulty,
        "tags": list(task.tags),
        "solution": task.solution,
        "tolerance": task.tolerance,
    }


def task_of(row: Mapping[str, Any]) -> CodeTask:
    """The task of a row that `task_json` wrote. Raises KeyError, TypeError or ValueError for any
    other row."""
    examples, hidden = (
        tuple(CallExample(tuple(arguments), expected) for arguments, expected in row[name])
        for name in ("examples", "hidden")
    )
    if not hidden:
        raise ValueError("a task needs hidden tests")
    return CodeTask(
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


def table_of_examples(task: CodeTask) -> str:
    """A function that knows the shown examples and nothing else."""
    known = {repr(example.arguments): example.expected for example in task.examples}
    return f"def {task.entry}(*words):\n    return {known!r}.get(repr(words))\n"
