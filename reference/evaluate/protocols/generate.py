"""Written answers: one or several samples of each case, scored.

As Kimi K2 is evaluated (arXiv:2507.20534, section 4.1): output tokens are bounded, samples are
repeated and averaged (`Avg@k`) where answers vary, inputs are cut at the context window. What is
cut is counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference.dialog import Dialog, Message
from reference.evaluate.protocols.protocol import (
    EvaluationContext,
    EvaluationProtocol,
    Row,
    TaskSummary,
    prompt_of,
    row_of,
    share_of,
    token_counts,
)
from reference.evaluate.scorers import SCORERS, ScorerInput
from reference.evaluate.statistics import Interval, best_of, most_voted, pass_at
from reference.evaluate.subject import Prompt, SampledAnswer
from reference.evaluate.task import EvaluationCase, EvaluationTask


class Generate(EvaluationProtocol):
    """Samples of each case."""

    def needs_chat(self, task: EvaluationTask) -> bool:
        """Where the task is written as a dialogue."""
        return task.spec.form == "chat"

    def ask(
        self, task: EvaluationTask, cases: Sequence[EvaluationCase], context: EvaluationContext
    ) -> list[Row]:
        """Samples of each case with their scores."""
        spec, size = task.spec, task.spec.samples
        prompts = [
            _prompt(task, case, context.seed, at) for case in cases for at in range(spec.samples)
        ]
        answers = context.subject.write(prompts)
        texts = [answer.reply.text if answer.reply else "" for answer in answers]
        rows = [case.row for case in cases for _ in range(size)]
        assert spec.scorer is not None
        scores = SCORERS[spec.scorer].judge(ScorerInput(rows, texts, context.judge))
        samples = [_sample(answer, score) for answer, score in zip(answers, scores, strict=True)]
        if spec.verifier is not None:
            seen = [{**row, **row.get("verify", {})} for row in rows]
            verified = SCORERS[spec.verifier].judge(ScorerInput(seen, texts, context.judge))
            samples = [
                {**sample, "verified": score}
                for sample, score in zip(samples, verified, strict=True)
            ]
        return [
            row_of(case, samples=samples[at * size : (at + 1) * size])
            for at, case in enumerate(cases)
        ]

    def summary(self, task: EvaluationTask, rows: Sequence[Row]) -> TaskSummary:
        """Means over samples, pass@k, votes and best-of-n."""
        size = task.spec.samples
        first = share_of(rows, _mean, len(rows) * size)
        metrics: dict[str, Interval] = {"pass@1": first}
        if size > 1:
            metrics = {f"avg@{size}": first, **metrics}
        for k in task.spec.ks:
            metrics[f"pass@{k}"] = share_of(rows, lambda row, k=k: _pass(row, k), len(rows))
        if size > 1:
            metrics[f"vote@{size}"] = share_of(rows, lambda row: _voted(task, row), len(rows))
        if task.spec.verifier is not None:
            metrics[f"best-of-{size}"] = share_of(rows, _best, len(rows))
        return TaskSummary(metrics, counts=counts_of(rows))

    def value(self, row: Row) -> tuple[float, float]:
        """The mean score of a case's samples."""
        return _mean(row), 1.0


def _prompt(task: EvaluationTask, case: EvaluationCase, seed: int, sample: int) -> Prompt:
    text = case.row["prompt"]
    said = text if task.spec.form == "text" else Dialog((Message("user", text),))
    metadata = {**task.spec.metadata, **case.row.get("metadata", {})}
    return prompt_of(task, said, metadata, seed, task.spec.name, case.id, sample)


def _sample(answer: SampledAnswer, score: float) -> Row:
    reply = answer.reply
    return {
        "text": reply.text if reply else "",
        "score": score if reply else 0.0,
        "finish": reply.finish if reply else "refused",
        "prompt_tokens": reply.tokens.prompt if reply else 0,
        "reply_tokens": reply.tokens.reply if reply else 0,
        "cut": answer.cut,
    }


def counts_of(rows: Sequence[Row]) -> Row:
    """How much was cut, refused and used, over all samples."""
    samples = [sample for row in rows for sample in row["samples"]]
    solved = sum(sample["score"] == 1 for sample in samples)
    return {
        "samples": len(samples),
        "solved": solved,
        "answers_cut": sum(sample["finish"] == "length" for sample in samples),
        "prompts_cut": sum(sample["cut"] > 0 for sample in samples),
        "prompt_tokens_cut": sum(sample["cut"] for sample in samples),
        "refused": sum(sample["finish"] == "refused" for sample in samples),
        **token_counts(samples, solved),
    }


def _mean(row: Row) -> float:
    return sum(sample["score"] for sample in row["samples"]) / len(row["samples"])


def _pass(row: Row, k: int) -> float:
    right = sum(sample["score"] == 1 for sample in row["samples"])
    return pass_at(k, len(row["samples"]), right)


def _voted(task: EvaluationTask, row: Row) -> float:
    assert task.spec.scorer is not None
    answer = SCORERS[task.spec.scorer].answer
    at = most_voted([answer(sample["text"]) for sample in row["samples"]])
    return 0.0 if at is None else row["samples"][at]["score"]


def _best(row: Row) -> float:
    return row["samples"][best_of([sample["verified"] for sample in row["samples"]])]["score"]


PROTOCOLS = {"generate": Generate()}
