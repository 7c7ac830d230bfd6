"""Hidden tests of untrusted code: run in the sandbox, judged outside of it.

Only inputs go in and only values come out; expected values stay in this process. So a changed test
runner, a planted file, an exit code or a printed marker cannot make a wrong value right. Limits
are in CPU time; on an overloaded machine a run that the wall clock ends counts as a timeout.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from reference.agentic.code import driver
from reference.sandbox.job import PYTHON, Command, Files, RunLimits, RunOutcome
from reference.sandbox.run import run

EndKind = Literal["value", "raises", "syntax", "timeout", "memory", "exited", "forbidden", "long"]
"""A value, an exception, or why there is neither. `forbidden`: too many processes or files; `long`:
a value of more than 64 KiB."""
LIMITS = RunLimits.model_validate(
    {"cpu": "10s", "wall": "60s", "memory": "256MiB", "processes": 16, "output": "4MiB"}
)
_TEXT = inspect.getsource(driver)
_TIMERS = (14, 24, 26, 27, 9)
"""SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, and SIGKILL, which follows SIGXCPU at the hard limit."""
_BY_LIMIT: Mapping[str, EndKind] = {
    "cpu": "timeout",
    "wall": "timeout",
    "memory": "memory",
    "processes": "forbidden",
    "scratch": "forbidden",
}


@dataclass(frozen=True, slots=True)
class CheckGroup:
    """Checks that share the code run before them: a solution, or a repository's path."""

    checks: tuple[str, ...]
    """Python texts that each set `result`. They run in order in one process, each with its own
    names; a check that ends the process ends the checks after it."""
    load: str = ""
    path: str = "."


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    kind: EndKind
    value: Any = None
    """The value, or the exception's class name."""


@dataclass(frozen=True, slots=True)
class Raises:
    """An expected exception, by class name."""

    name: str


@dataclass(frozen=True, slots=True)
class OddValue:
    """A value that is not plain data; it equals no expected value."""

    name: str = field(compare=False)

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def run_checks(
    groups: Sequence[CheckGroup],
    files: Files | None = None,
    *,
    cpu_s: float = 1.0,
) -> list[tuple[CheckResult, ...]]:
    """The results of each group in the order of its checks, from one sandbox run; `cpu_s` bounds
    each check. Code of one group could disturb another group, so one run is for one author's
    code."""
    job = {"groups": [asdict(group) for group in groups], "cpu_s": cpu_s}
    # A marker that code cannot print by accident; knowing it is of no use.
    nonce = hashlib.blake2b(json.dumps(job).encode(), digest_size=16).hexdigest()
    command = Command(
        (PYTHON, "-I", "-S", "-B", "-c", _TEXT),
        stdin=json.dumps({**job, "nonce": nonce}).encode(),
        files=files or {},
        environment={"PYTHONHASHSEED": "0"},
    )
    outcome = run(command, LIMITS)
    lines = _lines(outcome, nonce)
    return [
        tuple(_result(lines, outcome, (at, check)) for check in range(len(group.checks)))
        for at, group in enumerate(groups)
    ]


def is_expected(result: CheckResult, expected: Any) -> bool:
    """Whether a result is the expected one. Tuples equal lists, and true is not 1."""
    if isinstance(expected, Raises):
        return result.kind == "raises" and result.value == expected.name
    return result.kind == "value" and _equal(result.value, expected)


def _equal(value: Any, expected: Any) -> bool:
    if isinstance(expected, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(expected)
            and all(_equal(*pair) for pair in zip(value, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(_equal(value[key], item) for key, item in expected.items())
        )
    return isinstance(value, bool) == isinstance(expected, bool) and value == expected


def _lines(outcome: RunOutcome, nonce: str) -> dict[tuple[int, int], list[Any]]:
    """The driver's answers by group and check; the first of several for one check."""
    found: dict[tuple[int, int], list[Any]] = {}
    if outcome.ended in ("exit", "signal") and not outcome.ok:
        return found  # only untrusted code can end the driver like this
    begin = nonce.encode()
    for line in (outcome.stdout.head + outcome.stdout.tail).split(b"\n"):
        if not line.startswith(begin):
            continue
        try:
            group, check, answer = json.loads(line[len(begin) :])
            found.setdefault((int(group), int(check)), list(answer))
        except (ValueError, TypeError, RecursionError):
            continue  # forged, or cut by the output limit
    return found


def _result(
    lines: Mapping[tuple[int, int], list[Any]], outcome: RunOutcome, where: tuple[int, int]
) -> CheckResult:
    """The result of a check; without an answer, how its group or the whole run ended."""
    line = lines.get(where) or lines.get((where[0], -1))
    if line is None:
        return CheckResult(_BY_LIMIT.get(outcome.ended, "exited"))
    try:
        return _read(line)
    except (LookupError, TypeError, ValueError, RecursionError):
        return CheckResult("value", OddValue("forged"))


def _read(line: list[Any]) -> CheckResult:
    kind = line[0]
    if kind == "value":
        return CheckResult("value", _value(line[1]))
    if kind == "raises":
        return CheckResult("memory" if line[1] == "MemoryError" else "raises", str(line[1]))
    if kind == "ended":
        return CheckResult("timeout" if -line[1] in _TIMERS else "exited")
    if kind in ("syntax", "memory", "long"):
        return CheckResult(kind)
    return CheckResult("value", OddValue("forged"))


def _value(written: Any) -> Any:
    if isinstance(written, list):
        return [_value(item) for item in written]
    if not isinstance(written, dict):
        return written
    (kind, content), *_ = written.items()
    if kind == "dict":
        return {_key(key): _value(item) for key, item in content}
    if kind == "set":
        return frozenset(_key(item) for item in content)
    return OddValue(str(content))


def _key(written: Any) -> Any:
    value = _value(written)
    return tuple(map(_key, written)) if isinstance(value, list) else value
