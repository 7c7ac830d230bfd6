"""How close the predictions of many layouts came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.evidence.loop.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Score:
    """Over the layouts of one mode; errors are absolute shares of the measured step."""

    mode: str
    layouts: int
    median_error: float
    largest_error: float
    rank_correlation: float | None
    """Spearman's, of predicted and measured steps; None for fewer than three, or where all are
    equal."""
    drifted: int
    unsealed: int
    """Whose prediction was not on disk before the run, or is another now."""
    hits: int
    """Whose measured step lies in the sealed interval."""
    intervals: int
    """That had one."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def score(outcomes: Sequence[Outcome]) -> tuple[Score, ...]:
    """The score of each mode. Drifted runs count like the others."""
    modes = dict.fromkeys(one.mode for one in outcomes)
    return tuple(_of(mode, [one for one in outcomes if one.mode == mode]) for mode in modes)


def _of(mode: str, outcomes: Sequence[Outcome]) -> Score:
    errors = [abs(one.error) for one in outcomes]
    return Score(
        mode=mode,
        layouts=len(outcomes),
        median_error=median(errors),
        largest_error=max(errors),
        rank_correlation=_spearman(outcomes),
        drifted=sum(one.drifted for one in outcomes),
        unsealed=sum(not one.sealed for one in outcomes),
        hits=sum(one.hit is True for one in outcomes),
        intervals=sum(one.hit is not None for one in outcomes),
    )


def _spearman(outcomes: Sequence[Outcome]) -> float | None:
    """Spearman's coefficient (1904): Pearson's, of ranks."""
    if len(outcomes) < 3:
        return None
    predicted = _ranks([one.predicted for one in outcomes])
    measured = _ranks([one.measured for one in outcomes])
    if predicted.std() == 0 or measured.std() == 0:
        return None
    return float(np.corrcoef(predicted, measured)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Places in order; those of equal values are the mean of theirs."""
    ordered, found = np.sort(values), np.array(values)
    return (np.searchsorted(ordered, found) + np.searchsorted(ordered, found, "right")) / 2
