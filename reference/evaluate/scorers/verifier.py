"""Another generator judges: it reads the case's question, the target where there is one, and the
answer, and says yes or no. What it says else is no."""

from __future__ import annotations

from reference.dialog import Message
from reference.evaluate.scorers.scorer import Judging, Row, Scorer
from reference.generate.generator import complete_many
from reference.generate.request import Reply, Request, Sampling
from twin.errors import Problem, TwinError, UsageError

_SYSTEM = "You judge an answer. Reply with one word: yes if it is right, no if it is not."


def _judge(judging: Judging) -> list[float]:
    if judging.judge is None:
        message = "the scorer `verifier` needs a generator that judges"
        fix = "set `judge` to the address of a server"
        raise UsageError([Problem("TW587", "judge", message, fix)])
    pairs = zip(judging.rows, judging.texts, strict=True)
    replies = complete_many(judging.judge, [_asked(row, text) for row, text in pairs], 8)
    return [_read(reply) for reply in replies]


def _asked(row: Row, text: str) -> Request:
    target = f"\n\nA right answer: {row['target']}" if "target" in row else ""
    said = f"Question: {row.get('prompt', '')}{target}\n\nThe answer: {text}\n\nIs it right?"
    messages = (Message("system", _SYSTEM), Message("user", said))
    return Request(messages, (), Sampling(temperature=0.0, max_tokens=8), {"kind": "judge"})


def _read(reply: Reply | TwinError) -> float:
    if isinstance(reply, TwinError):
        raise reply
    return float(reply.text.strip().lower().startswith("yes"))


SCORER = Scorer("another generator says yes", (), _judge, lambda text: text.strip() or None)
