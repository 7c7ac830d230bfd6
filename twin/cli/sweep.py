"""`twin sweep`: what if I try every combination of these values?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, product
from pathlib import Path
from string import ascii_lowercase
from typing import Final, Literal

import typer

from twin.answers.executors import PoolChoice, check_cluster
from twin.answers.nearest import written
from twin.cli.answer import sweep_progress
from twin.cli.output import DOES_NOT_FIT, Output
from twin.errors import FieldError, Origin, Problem, UsageError
from twin.explore.sweep.grid import ScenarioSource, check_values, grid_of, read_axes
from twin.explore.sweep.points import PointOutcome, points_folder
from twin.explore.sweep.sweep import Sweep, SweepRequest, check_output, refuse_size, write
from twin.explore.sweep.sweep import sweep as answered
from twin.kinds.base import kind_of
from twin.loading import load_any
from twin.loading.files import table
from twin.reports.table import Block, Notes, Table, gibibytes, headed, ranged
from twin.scenario import Scenario
from twin.spec.kpis import Kpi
from twin.spec.sweep import check_figure

BUG, IMPOSSIBLE = 1, 3
"""Exit codes of a sweep none of whose points could be answered: by a failure of ours, or because no
such layout can run."""
_HEADINGS: Final = table(__name__, "_HEADINGS")
"""Labels that would be long."""
_MOST_ROWS: Final = 40
"""Rows of a table; of more points those that fit come first, the best before the others."""
_STATUS: Final = table(__name__, "_STATUS")
_WORDS: Final = table(__name__, "_WORDS")


def sweep(  # noqa: PLR0913  one parameter per option of the command line
    *,
    scenario: str,
    grid: list[str],
    sets: list[str],
    fidelity: Literal["events"] | None,
    jobs: int | None,
    cluster: str | None,
    output_file: Path | None,
    show: str | None,
    limit: int,
    no_cache: bool,
    output: Output,
) -> int | None:
    """What if I try every combination of these values?"""

    pool = pool_choice(jobs, cluster)
    if output_file is not None:
        check_output(output_file)
    asked = _asked(scenario, sets, grid, fidelity, limit)
    shown = _shown(show, asked)
    with sweep_progress(output) as progress:
        folder = None if no_cache else points_folder()
        found = answered(asked, pool=pool, folder=folder, progress=progress)
    if output_file is not None:
        write(found, output_file)
    _say(found, output, shown)
    return _exit_code(found)


def pool_choice(jobs: int | None, cluster: str | None) -> PoolChoice:
    """Who plays. Raises `UsageError` for what is no address of a cluster."""

    if cluster is None:
        return PoolChoice(jobs)

    if jobs is not None:
        raise typer.BadParameter("does not apply to clusters", param_hint="--jobs")
    check_cluster(cluster)
    return PoolChoice(cluster=cluster)


def _asked(
    path: str,
    sets: list[str],
    grid: list[str],
    fidelity: Literal["events"] | None,
    limit: int,
) -> SweepRequest:
    """What is swept; everything that is wrong with it is reported here."""

    axes = read_axes(grid)
    source = ScenarioSource(path, tuple(sets))
    loaded = load_any(path, sets)
    kind = kind_of(loaded)
    kind.refuse("sweep", loaded)
    whole = grid_of(loaded, axes)
    refuse_size(whole, limit)
    check_values(source, loaded, whole, axes)
    if kind.name != "step" or not isinstance(loaded, Scenario):
        if fidelity:
            message = f"does not apply to {kind.title}"
            raise typer.BadParameter(message, param_hint="--fidelity")
        return SweepRequest(loaded, source, whole, "whole")
    return SweepRequest(loaded, source, whole)


def _shown(show: str | None, asked: SweepRequest) -> tuple[str, ...]:
    """The key figures of the file and of --show. Raises `UsageError` for other names."""

    names = [name.strip() for name in (show or "").split(",") if name.strip()]
    section = getattr(asked.scenario, "sweep", None)
    wanted = [*(section.show if section else ()), *names]
    own = [kpi.key for kpi in asked.kind.kpis]
    origin = Origin("--show", 1, 1, show or "", len(show or ""))
    try:
        strange = [name for name in map(check_figure, wanted) if name not in own]
    except FieldError as error:
        raise UsageError([Problem(error.code, "", error.message, error.hint, origin)]) from None
    if strange:
        fix = f"write one of: {', '.join(own)}"
        message = f"{asked.kind.title} has no `{strange[0]}`"
        raise UsageError([Problem("TW152", "", message, fix, origin)])
    return tuple(dict.fromkeys(wanted))


def _say(found: Sweep, output: Output, shown: tuple[str, ...]) -> None:
    """The sweep as JSON, or in words and a table."""
    blocks: list[Block] = [sweep_table(found, shown)]
    if why := _reasons(found):
        blocks.append(Notes("Why not", tuple(f"{mark}: {words}" for words, mark in why.items())))
    output.answer(found.to_json(), _sentences(found), blocks)


def _exit_code(found: Sweep) -> int:
    if found.count("fits"):
        return 0
    if found.count("does_not_fit"):
        return DOES_NOT_FIT
    return IMPOSSIBLE if found.count("impossible") == len(found.rows) else BUG


def _sentences(found: Sweep) -> list[str]:
    """How many points ended how, and the ends of the frontier."""
    counted = [(found.count(status), pair) for status, pair in _WORDS.items()]
    ends = ", ".join(f"{count:,} {pair[count != 1]}" for count, pair in counted if count)
    total = len(found.rows)
    sentences = [f"{total:,} point{'s' * (total != 1)}: {ends}."]
    best = found.frontier
    if best:
        ends = {
            word: min(best, key=lambda place: found.loss(place, key))
            for word, key in zip(("Quickest", "Cheapest"), found.frontier_by, strict=True)
        }
        if len(set(found.frontier_by)) == 1:
            ends = {"Most tokens per second, since not all write the same": best[0]}
        elif len(set(ends.values())) == 1:
            ends = {"Quickest and cheapest": best[0]}
        sentences += [f"{word}: {_named(found, place)}." for word, place in ends.items()]
    return sentences


def sweep_table(found: Sweep, shown: Sequence[str] = ()) -> Table:
    """One row per point: the fields that vary, whether it fits, its key figures, and a letter for
    why not."""

    kpis = [kpi for kpi in found.kpis if kpi.key in (*found.kind.headline, *shown)]
    places, best = _places(found), set(found.frontier)
    named = ["", *_headings(found.fields), ""]
    figures = [_HEADINGS.get(kpi.key, kpi.label) for kpi in kpis]
    why = _reasons(found)
    heads = (*named, *figures, "to spare", *(["why not"] if why else []))
    left = {*range(len(named)), *range(len(named) + len(figures) + 1, len(heads))}
    table = headed("Points", *heads, left=left)
    length = found.kind.length
    for place in places:
        row = found.rows[place]
        outcome = row.outcome
        cells = [
            "*" if place in best else "",
            *(written(row.values[one]) if one in row.values else "" for one in found.fields),
            _STATUS[outcome.status],
            *(_figure(outcome, kpi, ends=kpi.key == length) for kpi in kpis),
            "" if outcome.headroom_bytes is None else gibibytes(outcome.headroom_bytes),
            why.get(_reason(outcome), ""),
        ]
        table.add_row(*cells[: len(heads)], dim=outcome.status != "fits")
    table.caption = _caption(found, len(places))
    return table


def _reasons(found: Sweep) -> dict[str, str]:
    """A letter for each reason why points do not fit or cannot run: in full they are too wide."""
    reasons = dict.fromkeys(_reason(found.rows[place].outcome) for place in _places(found))
    return dict(zip(filter(None, reasons), _letters(), strict=False))


def _letters() -> Iterator[str]:
    """a, b, ..., z, aa, ab, ..."""
    for size in count(1):
        yield from map("".join, product(ascii_lowercase, repeat=size))


def _reason(outcome: PointOutcome) -> str:
    return f"{outcome.code} {outcome.reason}".strip()


def _figure(outcome: PointOutcome, kpi: Kpi, *, ends: bool = True) -> str:
    if not outcome.kpis:
        return ""
    span = outcome.intervals.get(kpi.key) if ends else None
    return ranged(outcome.kpis.get(kpi.key), span, kpi.unit)


def _places(found: Sweep) -> list[int]:
    """The rows that are shown: all in their order, or of many the best."""
    if len(found.rows) <= _MOST_ROWS:
        return list(range(len(found.rows)))
    best = set(found.frontier)

    def rank(place: int) -> tuple[bool, bool, float]:
        row = found.rows[place]
        fits = row.outcome.status == "fits"
        first, _ = found.frontier_by
        return (place not in best, not fits, found.loss(place, first))

    return sorted(range(len(found.rows)), key=rank)[:_MOST_ROWS]


def _caption(found: Sweep, shown: int) -> str:
    said = "* Pareto-optimal in time and cost"
    if len(set(found.frontier_by)) == 1:
        said = "* no other point writes more per second and GPU"
    more = len(found.rows) - shown
    return said + (f"; {more:,} more points: --output writes all" if more else "")


def _headings(fields: Sequence[str]) -> list[str]:
    """The last key of each path, with those before it where two fields end alike."""
    last = Counter(path.rpartition(".")[2] for path in fields)
    short = {path: path.rpartition(".")[2] for path in fields}
    return [path if last[short[path]] > 1 else short[path] for path in fields]


def _named(found: Sweep, place: int) -> str:
    """A point as one would type it, and what it gives."""

    row = found.rows[place]
    words = " ".join(f"--set {path}={written(value)}" for path, value in row.values.items())
    kpis = [kpi for kpi in found.kpis if kpi.key in found.frontier_by]
    figures = [_figure(row.outcome, kpi) for kpi in kpis]
    return f"{words}: {', '.join(figures)}"
