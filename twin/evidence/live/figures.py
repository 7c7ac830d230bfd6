"""A run while it runs: the seconds of its steps beside what was sealed, and where they changed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from twin.evidence.live.drift import WARM_UP, StepTimeChange
from twin.evidence.live.follower import Track
from twin.evidence.live.trainer_log import LoggedStep
from twin.evidence.live.wording import change, sentence
from twin.figures.palette import BAD, GOOD, INK, Theme, swatch
from twin.figures.plotly import Axis, Dots, Frame, Line, Mark, Picture, Row, draw
from twin.reports.table import duration

_POINTS: Final = 1000
"""Points of a figure; of a longer run neighbouring steps are one point, their median."""
_LABELLED: Final = 4
"""Changes whose lines are labelled: the newest."""


def step_times(steps: Sequence[LoggedStep], found: Track, theme: Theme) -> Picture:
    """Seconds of every step, the levels between changes, and the sealed prediction as a band."""
    size = max(1, -(-len(steps) // _POINTS))
    shown = [steps[at : at + size] for at in range(0, len(steps), size)]
    x = [float(rows[-1].step) for rows in shown]
    y = [median(one.seconds for one in rows) for rows in shown]
    dots = swatch("forward", theme)
    hover = "step %{x:,}: %{y:.4g} s"
    points = Dots("Measured", x, y, dots.fill, dots.line, "circle", 5, hover)
    levels = Line(*_levels(steps, found.changes), INK[theme], "Level", 2.5)
    frame = Frame(
        x=Axis("Step", span=(0.0, max(1.0, 1.02 * steps[-1].step))),
        y=Axis("Seconds", span=_span(steps, found)),
        height=320,
        theme=theme,
        marks=(*_band(found, theme), *_turns(found.changes, theme)),
    )
    apart = f"Each point is the median of {size:,} steps. " if size > 1 else ""
    return Picture(
        title=sentence(found).rstrip("."),
        caption=f"{apart}The level is the median between two changes of the step time, which "
        "upright dashed lines mark. The first steps of a process warm up, and a few slow ones may "
        "lie above the figure.",
        figure=draw([points, levels, *_sealed(steps, found, theme)], frame),
        table=_table(steps, found),
    )


def _levels(
    steps: Sequence[LoggedStep], turns: Sequence[StepTimeChange]
) -> tuple[list[float], list[float]]:
    """The median between changes, and from stage to stage, as a line with gaps."""
    x, y = list[float](), list[float]()
    starts = {one.step for one in turns}
    part: list[LoggedStep] = []
    for one in [*steps, None]:
        new = one is None or one.step in starts or (part and one.stage != part[-1].stage)
        if new and part:
            warm = [row.seconds for row in part if row.fresh >= WARM_UP]
            level = median(warm or [row.seconds for row in part])
            x += [float(part[0].step), float(part[-1].step), float("nan")]
            y += [level, level, float("nan")]
            part = []
        if one is not None:
            part.append(one)
    return x, y


def _span(steps: Sequence[LoggedStep], found: Track) -> tuple[float, float]:
    """From a little below everything to a little above nearly everything."""
    ordered = sorted(one.seconds for one in steps)
    low, high = ordered[0], ordered[min(len(ordered) - 1, int(0.98 * len(ordered)))]
    if found.prediction is not None:
        ends = found.prediction.interval or (found.prediction.predicted,) * 2
        # A prediction that is far off must not flatten the run.
        low, high = min(low, max(ends[0], low / 3)), max(high, min(ends[1], 3 * high))
    room = 0.08 * (high - low) or 0.1 * high
    return max(0.0, low - room), high + 2 * room


def _sealed(steps: Sequence[LoggedStep], found: Track, theme: Theme) -> list[Line]:
    """The sealed step time, across the figure."""
    one = found.prediction
    if one is None:
        return []
    name = f"Sealed: {duration(one.predicted)}"
    name += " (band: its 80 % interval)" if one.interval else ", without an interval"
    ends = [0.0, 1.02 * steps[-1].step]
    return [Line(ends, [one.predicted] * 2, swatch("achieved", theme).fill, name, 1.5, "dash")]


def _band(found: Track, theme: Theme) -> list[Mark]:
    if found.prediction is None or found.prediction.interval is None:
        return []
    low, high = found.prediction.interval
    return [Mark(low, "", GOOD[theme], until=high, level=True)]


def _turns(turns: Sequence[StepTimeChange], theme: Theme) -> list[Mark]:
    marks: list[Mark] = []
    for at, one in enumerate(turns):
        slower = one.ratio > 1
        label = f"{'slower' if slower else 'faster'} from {one.step:,}"
        kept = label if len(turns) - at <= _LABELLED else ""
        colour = (BAD if slower else GOOD)[theme]
        marks.append(Mark(float(one.step), kept, colour, lift=at % 2))
    return marks


def _table(steps: Sequence[LoggedStep], found: Track) -> tuple[Row, ...]:
    """The changes, and the newest steps."""
    rows = [{"What": f"Change {n}", "Is": change(one)} for n, one in enumerate(found.changes, 1)]
    newest = steps[-10:]
    rows += [{"What": f"Step {one.step:,}", "Is": duration(one.seconds)} for one in newest]
    return tuple(rows)
