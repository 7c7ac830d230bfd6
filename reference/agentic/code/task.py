"""A programming task: one function to write, shown examples, and hidden tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from pydantic import TypeAdapter

VERSION = 1


class CallExample(NamedTuple):
    """Arguments of one call, and the right value."""

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


_TASK = TypeAdapter(CodeTask)


def task_json(task: CodeTask) -> dict[str, Any]:
    """A task as one JSON object; tuples become lists."""
    return {"version": VERSION, **asdict(task)}


def task_of(row: Mapping[str, Any]) -> CodeTask:
    """The task of a row that `task_json` wrote. Raises ValueError for any other row."""
    task = _TASK.validate_python(row)
    if not task.hidden:
        raise ValueError("a task needs hidden tests")
    return task


def table_of_examples(task: CodeTask) -> str:
    """A function that knows the shown examples and nothing else."""
    known = {repr(example.arguments): example.expected for example in task.examples}
    return f"def {task.entry}(*words):\n    return {known!r}.get(repr(words))\n"
