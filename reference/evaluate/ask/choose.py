"""Multiple choice by log-likelihood: which continuation of the prompt is likeliest, as a whole and
per byte. Continuations stand behind a space unless the prompt ends with white space or the case
says `glue: ""`, as lm-evaluation-harness puts its `target_delimiter`."""

from __future__ import annotations

from collections.abc import Sequence

from reference.evaluate.ask.way import Asking, Found, Row, Way, opened, own_cases
from reference.evaluate.scorers.choice import likeliest, likeliest_per_byte
from reference.evaluate.statistics.intervals import grouped, share
from reference.evaluate.task import Case, Task


def ask(task: Task, cases: Sequence[Case], asking: Asking) -> list[Row]:
    """The choice in each case, and how unlikely every one was."""
    pairs: list[tuple[str, str]] = []
    for case in cases:
        prompt = case.row["prompt"]
        glue = case.row.get("glue", "" if not prompt or prompt[-1].isspace() else " ")
        pairs += [(prompt, f"{glue}{choice}") for choice in case.row["choices"]]
    fits = iter(asking.subject.fits(pairs, task.spec.context_tokens))
    rows: list[Row] = []
    for case in cases:
        choices, target = case.row["choices"], case.row["target"]
        own = [next(fits) for _ in choices]
        nats = [fit.nats for fit in own]
        picks = likeliest(nats), likeliest_per_byte(nats, choices)
        right = choices.index(target)
        rows.append(
            opened(
                case,
                nats=nats,
                right=right,
                score=float(picks[0] == right),
                score_per_byte=float(picks[1] == right),
                cut=max(fit.cut for fit in own),
            )
        )
    return rows


def sum_up(task: Task, rows: Sequence[Row]) -> Found:
    """Shares of right choices."""
    del task
    metrics = {
        "accuracy": share(grouped((row["group"], row["score"]) for row in rows)),
        "accuracy_per_byte": share(grouped((row["group"], row["score_per_byte"]) for row in rows)),
    }
    counts = {
        "chance": round(sum(1 / len(row["nats"]) for row in rows) / len(rows), 4),
        "prompts_cut": sum(row["cut"] > 0 for row in rows),
        "prompt_tokens_cut": sum(row["cut"] for row in rows),
    }
    return Found(metrics, counts=counts)


def value(row: Row) -> tuple[float, float]:
    """Whether it was right."""
    return row["score"], 1.0


WAY = Way(lambda _: False, lambda _: True, own_cases, ask, sum_up, value)
