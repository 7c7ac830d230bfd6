"""What a way of asking is, and all of them by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from reference.evaluate.spec import Ask
from reference.evaluate.statistics.intervals import Interval
from reference.evaluate.subjects.subject import Subject
from reference.evaluate.task import Case, Task
from reference.generate.generator import Generator

Row = dict[str, Any]
"""What came of a case, as a line of JSON: `id`, `group`, and what the way of asking tells."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What an evaluation asks with."""

    subject: Subject
    seed: int
    judge: Generator | None = None
    at_once: int = 8


@dataclass(frozen=True, slots=True)
class Found:
    """What the cases of a task come to."""

    metrics: Mapping[str, Interval]
    """By name; the first one is what the task is about."""
    better: str = "higher"
    """Whether `higher` or `lower` is better."""
    counts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was cut, refused or used."""
    matrix: Mapping[str, Any] | None = None
    """A table of shares: `rows`, `columns`, `title`, `cells`."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way of asking."""

    chat: Callable[[Task], bool]
    """Whether a task needs the chat template."""
    reads: Callable[[Task], bool]
    """Whether a task needs log-likelihoods."""
    cases: Callable[[Task, Subject], Sequence[Case]]
    """The cases, as far as they depend on what is judged."""
    ask: Callable[[Task, Sequence[Case], Asking], list[Row]]
    """What came of some cases, in order."""
    sum_up: Callable[[Task, Sequence[Row]], Found]
    value: Callable[[Row], tuple[float, float]]
    """A case's own value and its weight: the first metric is the sum of the one over the other."""
    rules: Callable[[Task], bool] = lambda task: bool(task.spec.metadata)
    """Whether the embedded rules can be asked."""


def way(name: Ask) -> Way:
    """The way of this name."""
    return import_module(f"reference.evaluate.ask.{name}").WAY


def own_cases(task: Task, subject: Subject) -> Sequence[Case]:
    """The cases that the task has for everybody."""
    del subject
    return task.cases


def seed_of(*parts: object) -> int:
    """A seed of its own for each place, 31 bits of a hash."""
    text = "/".join(map(str, parts))
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % 10**9


def opened(case: Case, **more: Any) -> Row:
    """A row about a case."""
    return {"id": case.id, "group": case.group, **more}


def sum_of(rows: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """Of a number of each; None where one is not known."""
    found = [row[name] for row in rows]
    return None if any(one is None for one in found) else sum(found)


def per_solved(tokens: int | None, solved: int) -> float | None:
    """Tokens written for each solved case; None where nothing is solved or counted."""
    return tokens / solved if tokens is not None and solved else None
