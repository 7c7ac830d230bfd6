"""The answer's first line is the target, or one of several; case, spaces around and a final full
stop count for nothing."""

from __future__ import annotations

from reference.evaluate.scorers.scorer import Judging, Row, Scorer


def plain(text: str) -> str:
    """The first line with anything on it, as it is compared."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].lower().removesuffix(".").strip() if lines else ""


def targets(row: Row) -> list[str]:
    """The right answers of a case."""
    target = row["target"]
    return [target] if isinstance(target, str) else list(target)


def _judge(judging: Judging) -> list[float]:
    pairs = zip(judging.rows, judging.texts, strict=True)
    return [float(plain(text) in map(plain, targets(row))) for row, text in pairs]


SCORER = Scorer(
    "the first line is the target", ("target",), _judge, lambda text: plain(text) or None
)
