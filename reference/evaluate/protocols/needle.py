"""A fact hidden in a long text and asked for at its end, after Kamradt's "Needle in a haystack"
(2023): how far back does a model find it?

Each cell of the grid of depths and lengths has texts of its own, cut from the task's filler to the
length in tokens of the model. Lengths beyond its training are left out and named, so that learning
is measured and not how positions extrapolate; `context_tokens` moves that bound.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from reference.evaluate.protocols.generate import Generate
from reference.evaluate.protocols.likelihood import Choose
from reference.evaluate.protocols.protocol import (
    EvaluationContext,
    EvaluationProtocol,
    Row,
    TaskSummary,
    seed_of,
    shares_matrix,
)
from reference.evaluate.subject import Subject
from reference.evaluate.task import EvaluationCase, EvaluationTask, NeedleSpec

_FACT = "The secret word of {name} is {word}."
_QUESTION = "The secret word of {name} is"


class Needle(EvaluationProtocol):
    """Facts at depths of texts of several lengths."""

    def needs_chat(self, task: EvaluationTask) -> bool:
        """Where the answer is written in a dialogue."""
        return task.spec.form == "chat" and _grid(task).answer == "generate"

    def needs_likelihoods(self, task: EvaluationTask) -> bool:
        """Where the answer is chosen."""
        return _grid(task).answer == "choose"

    def cases(self, task: EvaluationTask, subject: Subject) -> list[EvaluationCase]:
        """A case for each fact of each cell."""
        grid, row = _grid(task), task.cases[0].row
        window = subject.window(task.spec.context_tokens)
        lengths = [length for length in grid.lengths if window is None or length <= window]
        cases: list[EvaluationCase] = []
        for length, depth, number in product(lengths, grid.depths, range(grid.facts)):
            id_ = f"{length}-{depth:g}-{number}"
            text = _text(task, subject, (length, depth), seed_of(row["seed"], id_))
            cases.append(EvaluationCase(id_, id_, {**text, "length": length, "depth": depth}))
        return cases

    def ask(
        self, task: EvaluationTask, cases: Sequence[EvaluationCase], context: EvaluationContext
    ) -> list[Row]:
        """Rows of multiple choice or of written answers, with length and depth."""
        spec = task.spec.model_copy(update={"scorer": "contains", "samples": 1})
        rows = _answers(task).ask(replace(task, spec=spec), cases, context)
        return [
            {**row, "length": case.row["length"], "depth": case.row["depth"]}
            for row, case in zip(rows, cases, strict=True)
        ]

    def summary(self, task: EvaluationTask, rows: Sequence[Row]) -> TaskSummary:
        """The share of facts found, by depth and length."""
        grid = _grid(task)
        lengths = sorted({row["length"] for row in rows})
        counts = _answers(task).summary(task, rows).counts
        return TaskSummary(
            {"found": self.mean(rows)},
            counts={**counts, "lengths_beyond_training": sorted({*grid.lengths} - {*lengths})},
            matrix=shares_matrix(
                "Share of facts found",
                ("depth", "depth", grid.depths),
                ("tokens", "length", lengths),
                rows,
                lambda row: self.value(row)[0],
            ),
        )

    def value(self, row: Row) -> tuple[float, float]:
        """Whether the fact was found."""
        return (row["score"], 1.0) if "score" in row else Generate().value(row)


def _grid(task: EvaluationTask) -> NeedleSpec:
    assert task.spec.needle is not None
    return task.spec.needle


def _answers(task: EvaluationTask) -> EvaluationProtocol:
    return Choose() if _grid(task).answer == "choose" else Generate()


def _text(task: EvaluationTask, subject: Subject, place: tuple[int, float], seed: int) -> Row:
    """As many whole sentences of filler as fit, the fact among them, and the question."""
    row, (length, depth), chance = task.cases[0].row, place, random.Random(seed)
    name = chance.choice(row["names"])
    words = chance.sample(row["words"], _grid(task).choices)
    fact, question = _FACT.format(name=name, word=words[0]), _QUESTION.format(name=name)
    spare = task.spec.output_tokens if _grid(task).answer == "generate" else 4
    room = length - spare - subject.tokens(f"{fact} {question}") - 1
    filler = chance.sample(row["filler"], len(row["filler"]))
    kept: list[str] = []
    while (room := room - subject.tokens(f" {filler[len(kept) % len(filler)]}")) >= 0:
        kept.append(filler[len(kept) % len(filler)])
    at = round(depth * len(kept))
    text = " ".join([*kept[:at], fact, *kept[at:], question])
    return {"prompt": text, "choices": sorted(words), "target": words[0]}


PROTOCOLS = {"needle": Needle()}
