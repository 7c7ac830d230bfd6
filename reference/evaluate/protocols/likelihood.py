"""Log-likelihoods of given text: bits per byte of whole texts (`read`), and multiple choice by the
likeliest continuation, as a whole and per byte (`choose`).

Continuations stand behind a space unless the prompt ends with white space or the case says
`glue: ""`, as lm-evaluation-harness puts its `target_delimiter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from reference.evaluate.protocols.protocol import (
    EvaluationContext,
    EvaluationProtocol,
    Row,
    TaskSummary,
    row_of,
    share_of,
)
from reference.evaluate.scorers import likeliest, likeliest_per_byte
from reference.evaluate.statistics import ratio
from reference.evaluate.task import EvaluationCase, EvaluationTask


class _Likelihood(EvaluationProtocol):
    def needs_likelihoods(self, task: EvaluationTask) -> bool:
        del task
        return True


class Read(_Likelihood):
    """Bits per byte: nats / ln 2 / bytes, over all texts together."""

    def ask(
        self, task: EvaluationTask, cases: Sequence[EvaluationCase], context: EvaluationContext
    ) -> list[Row]:
        """Nats, bytes and tokens of each text."""
        texts = [case.row["text"] for case in cases]
        fits = context.subject.read(texts, task.spec.context_tokens)
        return [
            row_of(case, nats=fit.nats, bytes=fit.bytes, tokens=fit.tokens)
            for case, fit in zip(cases, fits, strict=True)
        ]

    def summary(self, task: EvaluationTask, rows: Sequence[Row]) -> TaskSummary:
        """Bits per byte."""
        del task
        groups: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            groups.setdefault(row["group"], []).append(self.value(row))
        counts = {name: sum(row[name] for row in rows) for name in ("bytes", "tokens")}
        metrics = {"bits_per_byte": ratio(groups)}
        return TaskSummary(metrics, "lower", {"texts": len(rows), **counts})

    def value(self, row: Row) -> tuple[float, float]:
        """Bits and bytes of a text."""
        return row["nats"] / log(2), row["bytes"]


class Choose(_Likelihood):
    """Multiple choice."""

    def ask(
        self, task: EvaluationTask, cases: Sequence[EvaluationCase], context: EvaluationContext
    ) -> list[Row]:
        """The choice in each case, and the nats of every continuation."""
        pairs: list[tuple[str, str]] = []
        for case in cases:
            prompt = case.row["prompt"]
            glue = case.row.get("glue", "" if not prompt or prompt[-1].isspace() else " ")
            pairs += [(prompt, f"{glue}{choice}") for choice in case.row["choices"]]
        fits = iter(context.subject.fits(pairs, task.spec.context_tokens))
        rows: list[Row] = []
        for case in cases:
            choices = case.row["choices"]
            own = [next(fits) for _ in choices]
            nats, right = [fit.nats for fit in own], choices.index(case.row["target"])
            scores = {
                "score": float(likeliest(nats) == right),
                "score_per_byte": float(likeliest_per_byte(nats, choices) == right),
            }
            cut = max(fit.cut for fit in own)
            rows.append(row_of(case, nats=nats, right=right, **scores, cut=cut))
        return rows

    def summary(self, task: EvaluationTask, rows: Sequence[Row]) -> TaskSummary:
        """Shares of right choices."""
        del task
        metrics = {
            "accuracy": self.mean(rows),
            "accuracy_per_byte": share_of(rows, lambda row: row["score_per_byte"]),
        }
        counts = {
            "chance": round(sum(1 / len(row["nats"]) for row in rows) / len(rows), 4),
            "prompts_cut": sum(row["cut"] > 0 for row in rows),
            "prompt_tokens_cut": sum(row["cut"] for row in rows),
        }
        return TaskSummary(metrics, counts=counts)


PROTOCOLS = {"read": Read(), "choose": Choose()}
