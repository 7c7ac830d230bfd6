"""The base of evaluation protocols, and what several of them share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from reference.dialog import Dialog
from reference.evaluate.statistics import Interval, grouped, share
from reference.evaluate.subject import Prompt, Subject
from reference.evaluate.task import Ask, EvaluationCase, EvaluationTask
from reference.generate.request import Generator, Sampling

Row = dict[str, Any]
"""The result of a case, as a line of JSON: `id`, `group`, and fields of the protocol."""
_MODULES: Final = {"read": "likelihood", "choose": "likelihood"}
"""Modules of protocols that are not called like them."""


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """The model that is evaluated, the seed, and the generator that judges."""

    subject: Subject
    seed: int
    judge: Generator | None = None
    at_once: int = 8


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """The result of a task."""

    metrics: Mapping[str, Interval]
    """By name; the first is the task's own."""
    better: str = "higher"
    """Whether `higher` or `lower` is better."""
    counts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How much was cut, refused or used."""
    matrix: Mapping[str, Any] | None = None
    """A table of shares: `rows`, `columns`, `title`, `cells`."""


class EvaluationProtocol:
    """A way to ask the cases of a task."""

    def needs_chat(self, task: EvaluationTask) -> bool:
        """Whether it needs the chat template."""
        del task
        return False

    def needs_likelihoods(self, task: EvaluationTask) -> bool:
        """Whether it needs log-likelihoods of given text."""
        del task
        return False

    def rules_can_answer(self, task: EvaluationTask) -> bool:
        """Whether the embedded rules can be asked."""
        return bool(task.spec.metadata)

    def cases(self, task: EvaluationTask, subject: Subject) -> Sequence[EvaluationCase]:
        """The cases for this model."""
        del subject
        return task.cases

    def ask(
        self, task: EvaluationTask, cases: Sequence[EvaluationCase], context: EvaluationContext
    ) -> list[Row]:
        """The result of each case, in order."""
        raise NotImplementedError

    def summary(self, task: EvaluationTask, rows: Sequence[Row]) -> TaskSummary:
        """The result of the task."""
        raise NotImplementedError

    def value(self, row: Row) -> tuple[float, float]:
        """A case's value and its weight: the first metric is the sum of the values over that of the
        weights."""
        return row["score"], 1.0

    def mean(self, rows: Sequence[Row]) -> Interval:
        """The share of the cases' values."""
        return share_of(rows, lambda row: self.value(row)[0])


def protocol(name: Ask) -> EvaluationProtocol:
    """The protocol of this name."""
    module = import_module(f"reference.evaluate.protocols.{_MODULES.get(name, name)}")
    return module.PROTOCOLS[name]


def seed_of(*parts: object) -> int:
    """A seed of its own for each place, from a hash."""
    text = "/".join(map(str, parts))
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % 10**9


def prompt_of(
    task: EvaluationTask, said: str | Dialog, metadata: Mapping[str, Any], *place: object
) -> Prompt:
    """A prompt with the task's bounds; the seed follows from `place`."""
    return Prompt(said, sampling_of(task, *place), task.spec.context_tokens, metadata)


def sampling_of(task: EvaluationTask, *place: object) -> Sampling:
    """How the task's answers are drawn; the seed follows from `place`."""
    spec = task.spec
    return Sampling(
        temperature=spec.temperature,
        top_p=spec.top_p,
        max_tokens=spec.output_tokens,
        stop=spec.stop,
        seed=seed_of(*place),
    )


def row_of(case: EvaluationCase, **more: Any) -> Row:
    """The row of a case."""
    return {"id": case.id, "group": case.group, **more}


def share_of(
    rows: Sequence[Row], score: Callable[[Row], float], draws: int | None = None
) -> Interval:
    """The mean score of rows, clustered by their groups."""
    return share(grouped((row["group"], score(row)) for row in rows), draws)


def shares_matrix(
    title: str,
    down: tuple[str, str, Sequence[Any]],
    across: tuple[str, str, Sequence[Any]],
    rows: Sequence[Row],
    score: Callable[[Row], float],
) -> Row:
    """Mean scores by two fields of the rows, each given as its label, its field and its values;
    cells without a case are None."""

    def cell(*place: Any) -> Row | None:
        own = [row for row in rows if (row[down[1]], row[across[1]]) == place]
        if not own:
            return None
        mean = share_of(own, score)
        return {"value": mean.value, "low": mean.low, "high": mean.high, "cases": len(own)}

    return {
        "title": title,
        "rows": {"name": down[0], "values": list(down[2])},
        "columns": {"name": across[0], "values": list(across[2])},
        "cells": [[cell(row, column) for column in across[2]] for row in down[2]],
    }


def token_counts(rows: Sequence[Mapping[str, Any]], solved: int) -> Row:
    """Tokens written, and tokens per solved case; None where they are not known."""
    replies = [row["reply_tokens"] for row in rows]
    written = None if None in replies else sum(replies)
    per_solved = written / solved if written is not None and solved else None
    return {"reply_tokens": written, "tokens_per_solved": per_solved}
