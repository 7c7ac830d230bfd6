"""Programming tasks from JSONL: rows in our own format, HumanEval's or MBPP's.

Assertions that run beside the submission let it forge the verdict. So an assertion on plain values
becomes a call with its expected value: `assert f(1, 2) == 3`, `assert abs(f(0.5) - 0.25) < 1e-6`,
`assert f("")` and `assert not f("")` (here exactly true and false). Other assertions are left out
and counted. A row without a usable assertion is refused with its reason. No row is run here.

Sources: Chen et al., arXiv:2107.03374, section 2.2 (HumanEval: `task_id`, `prompt`, `entry_point`,
`canonical_solution`, `test`); Austin et al., arXiv:2108.07732, section 2.1 (MBPP: `task_id`,
`text`, `code`, `test_list`).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reference.agentic.code.generate import CallExample, CodeTask, task_of
from twin.errors import Problem, UsageError

_DIFFICULTY = 3
"""Of a task whose source gives none."""


@dataclass(frozen=True, slots=True)
class ImportedTasks:
    """The tasks of a file, the refused rows and the assertions left out."""

    tasks: tuple[CodeTask, ...]
    refused: tuple[tuple[int, str], ...]
    """Line numbers from 1, and the reason."""
    left_out: int
    """Assertions that do not compare plain values."""


def read_tasks(path: Path) -> ImportedTasks:
    """The tasks of a JSONL file. Raises UsageError (TW570) if it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read: {error}"
        fix = "name a JSONL file in UTF-8"
        raise UsageError([Problem("TW570", "tasks", message, fix)]) from None
    tasks: list[CodeTask] = []
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
    return ImportedTasks(tuple(tasks), tuple(refused), left_out)


def task_from(row: Mapping[str, Any]) -> tuple[CodeTask, int]:
    """The task of a row, and how many of its assertions are left out. Raises ValueError, KeyError
    or TypeError if the row is no task."""
    if "entry_point" in row:
        return _human_eval(row)
    if "test_list" in row:
        return _mbpp(row)
    return task_of(row), 0


def _human_eval(row: Mapping[str, Any]) -> tuple[CodeTask, int]:
    entry, prompt = str(row["entry_point"]), str(row["prompt"])
    tests = _Assertions.of(str(row["test"]), ("candidate", entry))
    solution = prompt + str(row.get("canonical_solution", ""))
    return tests.task(str(row["task_id"]), entry, prompt, solution), tests.left_out


def _mbpp(row: Mapping[str, Any]) -> tuple[CodeTask, int]:
    lines: Sequence[str] = [*row["test_list"], *row.get("challenge_test_list", ())]
    tests = _Assertions.of("\n".join(lines), ())
    text = str(row.get("text") or row["prompt"])
    # The paper shows all tests to the model; here the first is shown, and the others decide.
    shown = 1 if len(tests.examples) > 1 else 0
    name, solution = f"mbpp-{row['task_id']}", str(row.get("code", ""))
    return tests.task(name, tests.entry, text, solution, shown), tests.left_out


@dataclass(frozen=True, slots=True)
class _Assertions:
    """The assertions of a text as examples."""

    entry: str
    examples: tuple[CallExample, ...]
    left_out: int
    tolerance: float

    @classmethod
    def of(cls, text: str, names: Sequence[str]) -> _Assertions:
        """Assertions on calls of these functions, or of the function that the first one calls."""
        asserts = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)]
        examples: list[CallExample] = []
        tolerances = [0.0]
        for node in asserts:
            read = next(_read(node.test), None)
            if read is None or (names and read[0] not in names):
                continue
            names = names or (read[0],)
            if read[1] not in examples:
                examples.append(read[1])
            tolerances.append(read[2])
        if not examples:
            raise ValueError("none of its assertions compares a call with a plain value")
        return cls(names[-1], tuple(examples), len(asserts) - len(examples), max(tolerances))

    def task(self, name: str, entry: str, text: str, solution: str, shown: int = 0) -> CodeTask:
        """The task with this statement; the first `shown` examples are in it."""
        signature = next(
            (line for line in text.splitlines() if f"def {entry}(" in line), f"def {entry}"
        )
        return CodeTask(
            name,
            entry,
            signature.strip(),
            text.strip(),
            self.examples[:shown],
            self.examples[shown:],
            _DIFFICULTY,
            solution=solution,
            tolerance=self.tolerance,
        )


def _read(test: ast.expr) -> Iterator[tuple[str, CallExample, float]]:
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
        return  # not plain data


def _called(call: ast.expr, expected: Any) -> tuple[str, CallExample]:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise ValueError("no call of a function by its name, with arguments by place")
    return call.func.id, CallExample(tuple(map(ast.literal_eval, call.args)), expected)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors())
    return f"there is no {error}" if isinstance(error, KeyError) else f"{error}"
