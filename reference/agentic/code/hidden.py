"""What untrusted code answers, asked in the sandbox and judged outside of it.

Only inputs go in and only values come out; expected values stay in this process. So no edit of a
test runner, no planted file, no exit code and no printed marker can make a wrong answer right. The
limits are of CPU time; where a machine is so loaded that the clock ends a run, that is a timeout.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from reference.agentic.code import driver
from reference.sandbox.command import PYTHON, Command, Files
from reference.sandbox.isolation import Isolation
from reference.sandbox.limits import Limits
from reference.sandbox.outcome import Outcome
from reference.sandbox.run import run

Kind = Literal["value", "raises", "syntax", "timeout", "memory", "exited", "forbidden", "long"]
"""A value, an exception, or why there is neither; `forbidden`: more processes or files than it may
have; `long`: an answer of more than 64 KiB."""
LIMITS = Limits.model_validate(
    {"cpu": "10s", "wall": "60s", "memory": "256MiB", "processes": 16, "output": "4MiB"}
)
_TEXT = inspect.getsource(driver)
_TIMERS = (14, 24, 26, 27, 9)
"""SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, and SIGKILL, which follows SIGXCPU at the hard limit."""
_BY_LIMIT: Mapping[str, Kind] = {
    "cpu": "timeout",
    "wall": "timeout",
    "memory": "memory",
    "processes": "forbidden",
    "scratch": "forbidden",
}


@dataclass(frozen=True, slots=True)
class Group:
    """Checks that share code which is run once before them: a solution, or a repository's path."""

    checks: tuple[str, ...]
    """Python texts, each of which sets `result`. They run one after the other in one process, each
    with names of its own; one that ends the process ends those behind it."""
    load: str = ""
    path: str = "."


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one check."""

    kind: Kind
    value: Any = None
    """The value, or the name of the exception's class."""


@dataclass(frozen=True, slots=True)
class Raises:
    """An expected value that is an exception of this class."""

    name: str


@dataclass(frozen=True, slots=True)
class Odd:
    """A value that is no plain one; it is equal to nothing that a test expects."""

    name: str = field(compare=False)

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]  # it is never looked up


def ask(
    groups: Sequence[Group],
    files: Files | None = None,
    *,
    cpu_s: float = 1.0,
    limits: Limits = LIMITS,
    isolation: Isolation | None = None,
) -> list[tuple[Answer, ...]]:
    """The answers of each group in the order of its checks, all by one run of the sandbox; `cpu_s`
    bounds each check. Code of one group could spoil what another one answers, so that one run is
    for code of one author."""
    told = {"groups": [asdict(one) for one in groups], "cpu_s": cpu_s}
    # A word that code cannot print by chance; it hides nothing that would be of use.
    nonce = hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()
    command = Command(
        (PYTHON, "-I", "-S", "-B", "-c", _TEXT),
        stdin=json.dumps({**told, "nonce": nonce}).encode(),
        files=files or {},
        environment={"PYTHONHASHSEED": "0"},
    )
    outcome = run(command, limits, isolation=isolation)
    said = _said(outcome, nonce)
    return [
        tuple(_answer(said, outcome, (at, check)) for check in range(len(group.checks)))
        for at, group in enumerate(groups)
    ]


def same(answer: Answer, expected: Any, tolerance: float = 0.0) -> bool:
    """Whether an answer is the expected one. Tuples count as lists, true is not 1, floats may
    differ by the tolerance, relative or absolute."""
    if isinstance(expected, Raises):
        return answer.kind == "raises" and answer.value == expected.name
    return answer.kind == "value" and _equal(answer.value, expected, tolerance)


def _equal(value: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(expected)
            and all(
                _equal(one, other, tolerance) for one, other in zip(value, expected, strict=True)
            )
        )
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(_equal(value[key], one, tolerance) for key, one in expected.items())
        )
    if isinstance(expected, float) and isinstance(value, float | int):
        close = math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance)
        return not isinstance(value, bool) and (close or value == expected)
    return isinstance(value, bool) == isinstance(expected, bool) and value == expected


def _said(outcome: Outcome, nonce: str) -> dict[tuple[int, int], list[Any]]:
    """Answers by group and check; of two for one, the first."""
    found: dict[tuple[int, int], list[Any]] = {}
    if outcome.ended in ("exit", "signal") and not outcome.ok:
        return found  # the driver never ends so, unless code ended it
    begin = nonce.encode()
    for line in (outcome.stdout.head + outcome.stdout.tail).split(b"\n"):
        if not line.startswith(begin):
            continue
        try:
            group, check, answer = json.loads(line[len(begin) :])
            found.setdefault((int(group), int(check)), list(answer))
        except (ValueError, TypeError, RecursionError):
            continue  # forged, or cut where output was left out
    return found


def _answer(
    said: Mapping[tuple[int, int], list[Any]], outcome: Outcome, where: tuple[int, int]
) -> Answer:
    """The answer of a check; where there is none, how its group ended, or the whole run."""
    found = said.get(where) or said.get((where[0], -1))
    if found is None:
        return Answer(_BY_LIMIT.get(outcome.ended, "exited"))
    try:
        return _read(found)
    except (LookupError, TypeError, ValueError, RecursionError):
        return Answer("value", Odd("forged"))


def _read(found: list[Any]) -> Answer:
    kind = found[0]
    if kind == "value":
        return Answer("value", _value(found[1]))
    if kind == "raises":
        return Answer("memory" if found[1] == "MemoryError" else "raises", str(found[1]))
    if kind == "ended":
        return Answer("timeout" if -found[1] in _TIMERS else "exited")
    if kind in ("syntax", "memory", "long"):
        return Answer(kind)
    return Answer("value", Odd("forged"))


def _value(found: Any) -> Any:
    if isinstance(found, list):
        return [_value(one) for one in found]
    if not isinstance(found, dict):
        return found
    (kind, inner), *_ = found.items()
    if kind == "dict":
        return {_key(key): _value(one) for key, one in inner}
    if kind == "set":
        return frozenset(_key(one) for one in inner)
    return Odd(str(inner))


def _key(found: Any) -> Any:
    value = _value(found)
    return tuple(map(_key, found)) if isinstance(value, list) else value
