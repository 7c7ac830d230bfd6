"""The rows of a validation, and a page of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from twin.answers.csv_text import to_csv
from twin.answers.run_store import unwritable
from twin.evidence.loop.layouts import ReferenceLayout
from twin.evidence.loop.outcome import LayoutOutcome, LayoutScore
from twin.evidence.loop.rl_loop import LoopOutcome
from twin.loading.files import display
from twin.reports.breakdown import CAUSE_WORDS, CAUSES
from twin.reports.table import duration, markdown, signed

TABLE: Final = ("name", "scenario", "seconds")
"""Columns of a table of step times, as `twin.evidence.calibrate.columns` reads them."""
COLUMNS: Final = (
    "Layout",
    "ranks",
    "links",
    "predicted",
    "80 %",
    "measured",
    "error",
    "as sealed",
    "bubble",
    "exposed",
    "kept",
    "pace",
    "overran",
    "drift",
)


def cells(one: LayoutOutcome) -> tuple[str, ...]:
    """A layout's row: step, with the interval that was sealed; bubble and exposed communication,
    predicted and measured; what waits for a backward, likewise."""
    bubble, exposed = (f"{100 * share:.1f}" for share in one.bubble), map(duration, one.exposed)
    return (
        one.name,
        str(one.ranks),
        one.links,
        duration(one.predicted),
        _interval(one),
        duration(one.measured),
        f"{signed(100 * one.error)} %",
        "-" if one.sealed_error is None else f"{signed(100 * one.sealed_error)} %",
        f"{' / '.join(bubble)} %",
        " / ".join(exposed),
        " / ".join("?" if size is None else f"{size / 2**20:.2f}" for size in one.kept) + " MiB",
        f"{one.slowed:.2f}x, {one.tries}" if one.mode == "paced" else "-",
        f"{100 * one.overruns:.1f} %" + ("" if one.held else " !"),
        f"{signed(100 * one.drift)} %" + (" !" if one.drifted else ""),
    )


LOOP_COLUMNS: Final = ("Loop", "phase", "predicted", "measured", "error", "quartiles measured")


def loop_cells(one: LoopOutcome) -> Iterator[tuple[str, ...]]:
    """A row for each phase of a loop, and one for the whole iteration."""
    for name, found in one.middle.items():
        own = [each[name] for each in one.measured]
        yield _loop_row(one.name, name, (one.predicted[name], found), own)
    whole = [sum(each.values()) for each in one.measured]
    yield _loop_row(one.name, "iteration", one.seconds, whole)


def _loop_row(
    loop: str, phase: str, pair: tuple[float, float], measured: Sequence[float]
) -> tuple[str, ...]:
    predicted, found = pair
    low, _, high = quantiles(measured, n=4) if len(measured) > 1 else (measured[0],) * 3
    error = f"{signed(100 * (predicted / found - 1))} %"
    spread = f"{duration(low)} to {duration(high)}"
    return loop, phase, duration(predicted), duration(found), error, spread


def _interval(one: LayoutOutcome) -> str:
    """As it was sealed; what missed it is marked."""
    if one.interval is None:
        return "-"
    low, high = map(duration, one.interval)
    return f"{low} to {high}" + ("" if one.hit else " !")


def write(
    path: Path,
    outcomes: Sequence[LayoutOutcome],
    scores: Sequence[LayoutScore],
    loops: Sequence[LoopOutcome] = (),
) -> None:
    """Write the page. Raises UsageError where the file cannot be written."""
    lines = [*_lines(outcomes, scores), *_of_loops(loops)]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from None


def write_table(
    path: Path, layouts: Sequence[ReferenceLayout], outcomes: Sequence[LayoutOutcome]
) -> None:
    """Write layouts and their measured seconds as rows for `twin calibrate`. Raises UsageError
    where the file cannot be written."""
    places = {one.name: display(one.path) for one in layouts}
    rows = [(one.name, places[one.name], f"{one.measured:.4g}") for one in outcomes]
    try:
        path.write_text(to_csv(TABLE, rows), encoding="utf-8", newline="")
    except OSError as error:
        raise unwritable(path, error) from None


def _lines(outcomes: Sequence[LayoutOutcome], scores: Sequence[LayoutScore]) -> Iterator[str]:
    today = datetime.now(UTC).date().isoformat()
    yield f"# Predicted, then run: {today}"
    yield ""
    yield "Written by `twin validate --reference`."
    if not outcomes:
        return
    yield "Each layout was predicted and the prediction"
    yield "sealed, then the reference trainer ran it on ranks of this machine. A measured step is"
    yield "the median; 80 %: the sealed interval, from the errors of layouts that were checked"
    yield "before, `!` where it missed; as sealed: the error of what was sealed, which is at the"
    yield "machine's pace before the run where a profile follows it; pairs are"
    yield "predicted / measured, means over ranks; pace: how"
    yield "much slower than its GPU the layout ran, and how many paces were tried; overran: passes"
    yield "beyond it, `!` where there were too many, so that the row is no measurement and in no"
    yield "score; drift: the second half of the steps over the first, `!` beyond 5 %."
    for one in scores:
        own = [outcome for outcome in outcomes if outcome.mode == one.mode]
        yield from ("", f"## {one.mode.capitalize()}", "")
        yield from _summary(one)
        yield ""
        yield from _table(COLUMNS, map(cells, own))
        yield ""
        yield from _exposed(own)
        yield ""
        yield from _actions(own)


def _of_loops(loops: Sequence[LoopOutcome]) -> Iterator[str]:
    if not loops:
        return
    yield from ("", "## Loops of reinforcement learning", "")
    yield "Phases of an iteration, as predicted and as the median of all iterations but each run's"
    yield "first. The pass for log-probabilities is `score`, and no part of `train`."
    yield ""
    yield from _table(LOOP_COLUMNS, (row for one in loops for row in loop_cells(one)))


def _summary(one: LayoutScore) -> Iterator[str]:
    said = "unknown" if one.rank_correlation is None else f"{one.rank_correlation:.3f}"
    yield from _table(
        (
            "Layouts",
            "median error",
            "largest",
            "rank correlation",
            "drifted",
            "not sealed before",
            "intervals that held",
        ),
        [
            (
                str(one.layouts),
                f"{one.median_error:.1%}",
                f"{one.largest_error:.1%}",
                said,
                str(one.drifted),
                str(one.unsealed),
                f"{one.hits} of {one.intervals}",
            )
        ],
    )


def _exposed(outcomes: Sequence[LayoutOutcome]) -> Iterator[str]:
    """What compute waits for, by cause."""
    causes = [
        cause
        for cause in CAUSES
        if cause not in ("compute", "optimizer")
        and any(_row(one, side)[cause] for one in outcomes for side in (0, 1))
    ]
    rows = [
        (
            one.name,
            *(
                " / ".join(duration(_row(one, side)[cause] / 1e9) for side in (0, 1))
                for cause in causes
            ),
        )
        for one in outcomes
    ]
    yield from _table(("Where the rest goes", *(CAUSE_WORDS[one] for one in causes)), rows)


def _row(one: LayoutOutcome, side: int) -> Mapping[str, int]:
    return (one.comparison.predicted_row, one.comparison.measured_row)[side]


def _actions(outcomes: Sequence[LayoutOutcome]) -> Iterator[str]:
    """Per-action errors over the layouts."""
    found: dict[str, list[float]] = {}
    for one in outcomes:
        for action in one.comparison.actions:
            if action.error is not None:
                found.setdefault(action.name, []).append(action.error)
    rows = [
        (
            name,
            str(len(errors)),
            f"{signed(100 * median(errors))} %",
            f"{signed(100 * min(errors))} to {signed(100 * max(errors))} %",
        )
        for name, errors in found.items()
    ]
    yield from _table(("Action", "layouts", "median error", "from, to"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table with numbers as code: a dated page shows them, and nobody computes them."""
    quoted = ([first, *map(_number, rest)] for first, *rest in rows)
    return markdown([*map(_number, header)], quoted)


def _number(cell: str) -> str:
    return f"`{cell}`" if any(map(str.isdigit, cell)) else cell
