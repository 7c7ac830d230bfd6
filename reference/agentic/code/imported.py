"""Tasks from JSONL: rows of our own form, of HumanEval's and of MBPP's.

Theirs decide by assertions that run beside the submission, which can then forge the verdict. Each
assertion on plain values (`assert f(1, 2) == 3`, `assert abs(f(0.5) - 0.25) < 1e-6`, and
`assert f("")` or `assert not f("")`, which want true and false here and no other value that counts
as such) becomes a call and its expected value; others are left out and counted, and a row without
any that fits is refused with its reason. Nothing of a row is run here.

Sources: Chen et al., arXiv:2107.03374, section 2.2 (HumanEval: `task_id`, `prompt`, `entry_point`,
`canonical_solution`, `test`); Austin et al., arXiv:2108.07732, section 2.1 (MBPP: `task_id`,
`text`, `code`, `test_list`).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reference.agentic.code.task import Example, Task, task_of
from twin.errors import Problem, UsageError

_DIFFICULTY = 3
"""Of a task whose source says none."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The tasks of a file, and what is not among them."""

    tasks: tuple[Task, ...]
    refused: tuple[tuple[int, str], ...]
    """Lines, counted from 1, and why."""
    left_out: int
    """Assertions of imported tasks that are no comparison of plain values."""


def read_tasks(path: Path) -> Imported:
    """The tasks of a JSONL file. Raises UsageError where it cannot be read (TW570)."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read: {error}"
        fix = "name a JSONL file in UTF-8"
        raise UsageError([Problem("TW570", "tasks", message, fix)]) from None
    tasks: list[Task] = []
    refused: list[tuple[int, str]] = []
    left_out = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            task, missed = task_from(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            refused.append((number, _reason(error)))
            continue
        tasks.append(task)
        left_out += missed
    return Imported(tuple(tasks), tuple(refused), left_out)


def task_from(row: Mapping[str, Any]) -> tuple[Task, int]:
    """The task of a row, and how many of its assertions are left out. Raises ValueError, KeyError
    or TypeError for what is no task."""
    if "entry_point" in row:
        return _human_eval(row)
    if "test_list" in row:
        return _mbpp(row)
    return task_of(row), 0


def _human_eval(row: Mapping[str, Any]) -> tuple[Task, int]:
    entry, prompt = str(row["entry_point"]), str(row["prompt"])
    found = _Found.of(str(row["test"]), ("candidate", entry))
    solution = prompt + str(row.get("canonical_solution", ""))
    task = _task(str(row["task_id"]), entry, prompt, (found.tests[:0], found.tests))
    return _with(task, solution, found), found.left_out


def _mbpp(row: Mapping[str, Any]) -> tuple[Task, int]:
    listed: Sequence[str] = [*row["test_list"], *row.get("challenge_test_list", ())]
    found = _Found.of("\n".join(listed), ())
    entry = found.entry
    text = str(row.get("text") or row["prompt"])
    # The paper shows all tests to the model; here one is shown, and the others decide.
    shown = found.tests[:1] if len(found.tests) > 1 else ()
    task = _task(f"mbpp-{row['task_id']}", entry, text, (shown, found.tests[len(shown) :]))
    return _with(task, str(row.get("code", "")), found), found.left_out


def _task(
    name: str, entry: str, text: str, tests: tuple[tuple[Example, ...], tuple[Example, ...]]
) -> Task:
    signature = next(
        (line for line in text.splitlines() if f"def {entry}(" in line), f"def {entry}"
    )
    return Task(name, entry, signature.strip(), text.strip(), *tests, _DIFFICULTY)


def _with(task: Task, solution: str, found: _Found) -> Task:
    return replace(task, solution=solution, tolerance=found.tolerance)


@dataclass(frozen=True, slots=True)
class _Found:
    """Tests among the assertions of a text."""

    entry: str
    tests: tuple[Example, ...]
    left_out: int
    tolerance: float

    @classmethod
    def of(cls, text: str, names: Sequence[str]) -> _Found:
        """Assertions on calls of a function of these names, or of the one that the first calls."""
        asserts = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Assert)]
        tests: list[Example] = []
        tolerances = [0.0]
        for one in asserts:
            read = next(_read(one.test), None)
            if read is None or (names and read[0] not in names):
                continue
            names = names or (read[0],)
            if read[1] not in tests:
                tests.append(read[1])
            tolerances.append(read[2])
        if not tests:
            raise ValueError("none of its assertions compares a call with a plain value")
        return cls(names[-1], tuple(tests), len(asserts) - len(tests), max(tolerances))


def _read(test: ast.expr) -> Iterator[tuple[str, Example, float]]:
    """The function's name, the example and the tolerance of an assertion of a known form."""
    try:
        match test:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
                call, value = (left, right) if isinstance(left, ast.Call) else (right, left)
                yield *_called(call, ast.literal_eval(value)), 0.0
            case ast.Compare(
                left=ast.Call(
                    func=ast.Name(id="abs"), args=[ast.BinOp(left=left, op=ast.Sub(), right=right)]
                ),
                ops=[ast.Lt() | ast.LtE()],
                comparators=[bound],
            ):
                yield *_called(left, float(ast.literal_eval(right))), float(ast.literal_eval(bound))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield *_called(operand, False), 0.0
            case ast.Call():
                yield *_called(test, True), 0.0
    except (ValueError, TypeError, SyntaxError):
        return  # an argument or a value that is not plain


def _called(call: ast.expr, expected: Any) -> tuple[str, Example]:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise ValueError("no call of a function by its name, with arguments by place")
    return call.func.id, Example(tuple(map(ast.literal_eval, call.args)), expected)


def _reason(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else f"{error}"
