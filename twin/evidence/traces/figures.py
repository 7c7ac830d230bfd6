"""Where a traced step went beside a plan's prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twin.evidence.traces.answer import TraceAnswer
from twin.figures.palette import Theme
from twin.figures.plotly import Picture
from twin.figures.step import causes_table, stacked
from twin.reports.breakdown import CAUSE_WORDS, CAUSES
from twin.reports.table import percent

_CAPTION: Final = (
    "Each bar is the mean rank's time: seconds, and share of the bar in percent. In a trace, a "
    "kernel that communication slows counts as compute."
)
_PART: Final = (
    " The traces name no step, so the prediction is drawn as long as they are: compare shares."
)


def beside_prediction(found: TraceAnswer, step: Mapping[str, int], theme: Theme) -> Picture:
    """The traced time by cause, beside the predicted step of a plan (ns by cause). Where the traces
    name no step they may hold a part of one, so that only shares can be compared."""
    mine, whole = found.row, found.step is not None
    length, predicted = max(1, sum(mine.values())), max(1, sum(step.values()))
    scale = 1.0 if whole else length / predicted
    other = {cause: round(scale * step[cause]) for cause in CAUSES}
    rows = [("measured", mine), ("predicted", other)]
    worst = max(CAUSES, key=lambda cause: abs(other[cause] - mine[cause]))
    shares = percent(mine[worst] / length), percent(step[worst] / predicted)
    return Picture(
        title=f"They differ most in {CAUSE_WORDS[worst]}: {shares[0]} of the measured time, "
        f"{shares[1]} of the predicted",
        caption=_CAPTION if whole else _CAPTION + _PART,
        figure=stacked(rows, theme),
        table=causes_table(rows),
    )
