"""Several answers to one question as one number."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb


def pass_at(k: int, samples: int, right: int) -> float:
    """The chance that k of the samples, drawn without putting back, hold a right one: unbiased for
    the chance of k new samples (Chen et al. 2021, arXiv:2107.03374, equation 1).

    Whole numbers keep it exact. Raises ValueError for k above the number of samples.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, and there are {samples}")
    return 1 - comb(samples - right, k) / comb(samples, k)


def most_voted(answers: Sequence[str | None]) -> int | None:
    """Which sample says first what most of them say (Wang et al. 2022, arXiv:2203.11171); of
    equally many the answer that came first. None where nobody says anything."""
    said = [answer for answer in answers if answer is not None]
    if not said:
        return None
    best = max(dict.fromkeys(said), key=said.count)
    return answers.index(best)


def best_of(verified: Sequence[float]) -> int:
    """Which sample a verifier likes best; the first of equals."""
    return max(range(len(verified)), key=lambda at: (verified[at], -at))
