"""The target, or one of several, stands somewhere in the answer; case counts for nothing."""

from __future__ import annotations

from reference.evaluate.scorers.exact import plain, targets
from reference.evaluate.scorers.scorer import Judging, Scorer


def _judge(judging: Judging) -> list[float]:
    pairs = zip(judging.rows, judging.texts, strict=True)
    return [
        float(any(target.lower() in text.lower() for target in targets(row))) for row, text in pairs
    ]


SCORER = Scorer("the target stands in it", ("target",), _judge, lambda text: plain(text) or None)
