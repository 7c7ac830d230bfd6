"""Answers in words: one or several samples of each, scored.

Kimi K2 does the same (arXiv:2507.20534, section 4.1): a bound on output tokens, samples repeated
and averaged (`Avg@k`) where answers vary, inputs cut at the context window. What was
cut is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reference.dialog import Dialog, Message
from reference.evaluate.ask.way import (
    Asking,
    Found,
    Row,
    Way,
    opened,
    own_cases,
    per_solved,
    seed_of,
)
from reference.evaluate.scorers.scorer import Judging, scorer
from reference.evaluate.statistics.intervals import Interval, grouped, share
from reference.evaluate.statistics.repeats import best_of, most_voted, pass_at
from reference.evaluate.subjects.subject import Answer, Prompt
from reference.evaluate.task import Case, Task
from reference.generate.request import Sampling


def prompts_of(task: Task, cases: Sequence[Case], seed: int) -> list[Prompt]:
    """The prompts of all samples, those of a case in a row."""
    spec = task.spec
    found: list[Prompt] = []
    for case in cases:
        text = case.row["prompt"]
        said = text if spec.form == "text" else Dialog((Message("user", text),))
        metadata = {**spec.metadata, **case.row.get("metadata", {})}
        for sample in range(spec.samples):
            sampling = Sampling(
                temperature=spec.temperature,
                top_p=spec.top_p,
                max_tokens=spec.output_tokens,
                stop=spec.stop,
                seed=seed_of(seed, spec.name, case.id, sample),
            )
            found.append(Prompt(said, sampling, spec.context_tokens, metadata))
    return found


def ask(task: Task, cases: Sequence[Case], asking: Asking) -> list[Row]:
    """Samples of each case with their scores."""
    spec = task.spec
    answers = asking.subject.write(prompts_of(task, cases, asking.seed))
    texts = [answer.reply.text if answer.reply else "" for answer in answers]
    rows = [case.row for case in cases for _ in range(spec.samples)]
    assert spec.scorer is not None
    scores = scorer(spec.scorer).judge(Judging(rows, texts, asking.judge))
    liked: Sequence[float | None] = [None] * len(scores)
    if spec.verifier is not None:
        seen = [{**row, **row.get("verify", {})} for row in rows]
        liked = scorer(spec.verifier).judge(Judging(seen, texts, asking.judge))
    samples = [
        _sample(answer, text, score, like)
        for answer, text, score, like in zip(answers, texts, scores, liked, strict=True)
    ]
    size = spec.samples
    return [
        opened(case, samples=samples[at * size : (at + 1) * size]) for at, case in enumerate(cases)
    ]


def _sample(answer: Answer, text: str, score: float, liked: float | None) -> Row:
    reply = answer.reply
    made = {
        "text": text,
        "score": score if reply else 0.0,
        "finish": reply.finish if reply else "refused",
        "prompt_tokens": reply.tokens.prompt if reply else 0,
        "reply_tokens": reply.tokens.reply if reply else 0,
        "cut": answer.cut,
    }
    return made if liked is None else {**made, "verified": liked}


def sum_up(task: Task, rows: Sequence[Row]) -> Found:
    """Means over samples, and what several samples of a case come to."""
    spec = task.spec
    metrics: dict[str, Interval] = {"pass@1": _share(rows, _mean, spec.samples)}
    if spec.samples > 1:
        metrics = {f"avg@{spec.samples}": metrics["pass@1"], **metrics}
    for k in spec.ks:
        metrics[f"pass@{k}"] = _share(rows, lambda row, k=k: _pass(row, k))
    if spec.samples > 1:
        metrics[f"vote@{spec.samples}"] = _share(rows, lambda row: _voted(task, row))
    if spec.verifier is not None:
        metrics[f"best-of-{spec.samples}"] = _share(rows, _best)
    return Found(metrics, counts=counts_of(rows))


def value(row: Row) -> tuple[float, float]:
    """The mean score of a case's samples."""
    return _mean(row), 1.0


def _mean(row: Row) -> float:
    return sum(one["score"] for one in row["samples"]) / len(row["samples"])


def counts_of(rows: Sequence[Row]) -> Row:
    """What was cut, refused and used, over all samples."""
    samples = [one for row in rows for one in row["samples"]]
    replies = [one["reply_tokens"] for one in samples]
    written = None if any(one is None for one in replies) else sum(replies)
    solved = sum(one["score"] == 1 for one in samples)
    return {
        "samples": len(samples),
        "solved": solved,
        "answers_cut": sum(one["finish"] == "length" for one in samples),
        "prompts_cut": sum(one["cut"] > 0 for one in samples),
        "prompt_tokens_cut": sum(one["cut"] for one in samples),
        "refused": sum(one["finish"] == "refused" for one in samples),
        "reply_tokens": written,
        "tokens_per_solved": per_solved(written, solved),
    }


def _share(rows: Sequence[Row], of: Callable[[Row], float], samples: int = 1) -> Interval:
    return share(grouped((row["group"], of(row)) for row in rows), len(rows) * samples)


def _pass(row: Row, k: int) -> float:
    right = sum(one["score"] == 1 for one in row["samples"])
    return pass_at(k, len(row["samples"]), right)


def _voted(task: Task, row: Row) -> float:
    assert task.spec.scorer is not None
    answer = scorer(task.spec.scorer).answer
    at = most_voted([answer(one["text"]) for one in row["samples"]])
    return 0.0 if at is None else row["samples"][at]["score"]


def _best(row: Row) -> float:
    return row["samples"][best_of([one["verified"] for one in row["samples"]])]["score"]


WAY = Way(lambda task: task.spec.form == "chat", lambda _: False, own_cases, ask, sum_up, value)
