"""Which of several continuations a model finds likeliest.

The two rules of lm-evaluation-harness: `acc` by the sum of log-probabilities, `acc_norm` by that
sum per byte of the continuation (Gao, "Multiple Choice Normalization in LM Evaluation", EleutherAI
blog, 2021). The first favours short continuations, the second often long ones. Of equals the first.
"""

from __future__ import annotations

from collections.abc import Sequence


def likeliest(nats: Sequence[float]) -> int:
    """The continuation with the least nats."""
    return min(range(len(nats)), key=lambda at: nats[at])


def likeliest_per_byte(nats: Sequence[float], texts: Sequence[str]) -> int:
    """The continuation with the least nats per byte of its text, without the space before it."""
    return likeliest([one / len(text.encode()) for one, text in zip(nats, texts, strict=True)])
