"""How right the twin is, in a sentence and a dozen lines: what `twin validate --shipped`, the
README and the page Reality of the app begin with.

Only rows that no fit has seen judge. Those of kernels and of collectives were all seen, so what is
told of them is predicted by fits without their row (`twin.evidence.validate.leave_one_out`), where
such were made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from twin.evidence.validate import score
from twin.evidence.validate.answer import Answer
from twin.evidence.validate.bars import PEAK, STEP, of_vtrain
from twin.evidence.validate.baselines import BASELINES
from twin.evidence.validate.report import percent
from twin.evidence.validate.score import TAIL, Errors, Overall, Share
from twin.evidence.validate.summary import Summary

Choose = Callable[[Answer], bool]
COLUMNS: Final = (
    "Not fitted to", "rows", "expressed", "median", "9 in 10", "largest", *BASELINES, "held",
)  # fmt: skip
"""What the cells of a line hold."""


@dataclass(frozen=True, slots=True)
class Line:
    """Answers of one kind that judge: how many could be `expressed`, of all; their errors, over
    families, too; what nine of ten errors are `within`; the median errors of the baselines."""

    name: str
    expressed: Share
    overall: Overall
    within: float
    others: tuple[float | None, ...]

    def cells(self) -> tuple[str, ...]:
        """The line as text, column by column."""
        one = self.overall.errors
        return (
            self.name, f"{one.rows:,}", percent(self.expressed.value), percent(one.median),
            percent(self.within), percent(one.largest), *map(percent, self.others), held(one),
        )  # fmt: skip


def held(one: Errors) -> str:
    """How many intervals hold what was measured."""
    return f"{one.covered:,} of {one.intervals:,}" if one.intervals else "-"


def line(name: str, summary: Summary) -> Line | None:
    """The line of all answers of a summary that judge; None where none does."""
    asked = [one for one in summary.answers if one.use == "check"]
    theirs = (score.errors(score.judged(summary.baselines.get(b, ()))) for b in BASELINES)
    return _line(name, asked, score.judged(asked), [one and one.median for one in theirs])


def _left_out(name: str, summary: Summary, category: str) -> Line | None:
    """The line of what fits say that have not seen the rows."""
    asked = [one for one in summary.answers if one.category == category]
    own = [one for one in summary.left_out if one.category == category]
    return _line(name, asked, own, [None] * len(BASELINES))


def _line(
    name: str, asked: Sequence[Answer], own: Sequence[Answer], others: Sequence[float | None]
) -> Line | None:
    overall = score.overall(own)
    if overall is None:
        return None
    share = Share(len({one.id for one in own}), len({one.id for one in asked}))
    sizes = [abs(one.error) for one in own if one.error is not None]
    return Line(name, share, overall, float(np.quantile(sizes, TAIL)), tuple(others))


def lines(summary: Summary) -> tuple[Line, ...]:
    """Steps by GPU, vTrain's tables apart; all else by what it is."""
    found = [line(name, summary.part(choose)) for name, choose in _CHOICES]
    found += [_left_out(name, summary, category) for name, category in _LEFT_OUT]
    return tuple(one for one in found if one is not None)


def sentence(summary: Summary) -> str:
    """How far the steps of a summary are missed, as a planner asks."""
    found = line("", summary.part(_is_step))
    if found is None:
        return "Of these published rows, none is a training step that no number was fitted to."
    one = found.overall.errors
    told = (
        f"Of {one.rows:,} published training steps that no number was fitted to, half are missed "
        f"by less than {percent(one.median)}, and half of their {found.overall.families} families "
        f"of near copies by less than {percent(found.overall.median_of_families)}"
    )
    if one.intervals:
        told += f"; {percent(one.covered / one.intervals)} lie in their 80 % interval"
    return f"{told}."


def _is_step(one: Answer) -> bool:
    return one.metric == STEP


def _of_vtrain(one: Answer) -> bool:
    return bool(of_vtrain((one,)))


def _steps_on(*gpus: str) -> Choose:
    return lambda one: _is_step(one) and one.gpu.startswith(gpus) and not _of_vtrain(one)


_CHOICES: Final[tuple[tuple[str, Choose], ...]] = (
    ("Training steps", _is_step),
    ("on A100, of vTrain's tables", lambda one: _is_step(one) and _of_vtrain(one)),
    ("on A100, of all other sources", _steps_on("A100")),
    ("on H100", _steps_on("H100")),
    ("on H800", _steps_on("H800")),
    ("on H200", _steps_on("H200")),
    ("on B200, B300, GB200, GB300", _steps_on("B200", "B300", "GB200", "GB300")),
    ("Peak memory", lambda one: one.metric == PEAK),
    ("Weight updates", lambda one: one.metric == "update_seconds"),
    ("Iterations of RL", lambda one: one.metric == "iteration_seconds"),
)
_LEFT_OUT: Final = (
    ("Kernels, left out of their fit", "kernel"),
    ("Collectives, left out of their fit", "collective"),
)
