"""`twin sweep`: what if I try every combination of these values?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from twin.cli.answer import sweep_progress
from twin.cli.options import JsonOption, NoCacheOption, QuietOption, ScenarioArgument, SetOption
from twin.cli.output import DOES_NOT_FIT, Output

if TYPE_CHECKING:
    from twin.answers.executors import PoolChoice
    from twin.explore.sweep.sweep import Sweep, SweepRequest, SweepRow
    from twin.reports.table import Table
    from twin.spec.kpis import Kpi

BUG, IMPOSSIBLE = 1, 3
"""Exit codes of a sweep none of whose points could be answered: by a failure of ours, or because no
such layout can run."""
_HEADINGS: Final = {
    "step_seconds": "step",
    "days": "run",
    "cost_usd": "cost",
    "mfu": "MFU",
    "iteration_seconds": "iteration",
    "rollout_seconds": "rollouts",
    "trained_tokens_per_second_per_gpu": "trained",
    "tokens_per_second_per_gpu": "per GPU",
    "idle_share": "idle",
    "tail_share": "tail",
    "cost_usd_per_iteration": "cost",
    "cost_usd_of_rollouts": "cost",
}
"""Labels that would be long."""
_MOST_ROWS: Final = 40
"""Rows of a table; of more points those that fit come first, the best before the others."""
_STATUS: Final = {
    "fits": "fits",
    "does_not_fit": "out of memory",
    "impossible": "impossible",
    "failed": "failed",
}
_WORDS: Final = {
    "fits": ("fits", "fit"),
    "does_not_fit": ("does not fit", "do not fit"),
    "impossible": ("is impossible", "are impossible"),
    "failed": ("failed", "failed"),
}


class SweepFidelity(StrEnum):
    """How each point is answered."""

    FAST = "fast"
    EVENTS = "events"


_GridOption = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="A.B=VALUES",
        help="Vary one field: 8,16 or 4..32:x2 (doubling) or 10..50:10; repeat to combine.",
    ),
]
_FidelityOption = Annotated[
    SweepFidelity | None,
    typer.Option(
        "--fidelity", help="Estimate by the longest path (fast), or simulate every event (events)."
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Parallel processes [default: all cores]."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="URL", help="Run on a cluster: dask://HOST:PORT or ray://HOST:PORT."
    ),
]
_OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write all points to a .json, .csv or .parquet file."
    ),
]
_ShowOption = Annotated[
    str | None,
    typer.Option("--show", metavar="KPI,...", help="Show further key figures in the table."),
]
_LimitOption = Annotated[
    int, typer.Option("--limit", min=1, help="Refuse a sweep of more points than this.")
]


def sweep(  # noqa: PLR0913  one parameter per option of the command line
    scenario: ScenarioArgument,
    *,
    grid: _GridOption = None,
    sets: SetOption = None,
    fidelity: _FidelityOption = None,
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    output_file: _OutputOption = None,
    show: _ShowOption = None,
    limit: _LimitOption = 10_000,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    no_cache: NoCacheOption = False,
) -> None:
    """What if I try every combination of these values?

    Answers every point of the scenario's `sweep:` section and of --grid. Points are stored in
    runs/points: a sweep that was stopped continues where it was. Exits with 4 when no point fits,
    with 3 when no point can run at all.
    """
    from twin.explore.sweep.points import points_folder
    from twin.explore.sweep.sweep import check_output, write
    from twin.explore.sweep.sweep import sweep as answered

    pool = pool_choice(jobs, cluster)
    if output_file is not None:
        check_output(output_file)
    output = Output(as_json, quiet)
    asked = _asked(scenario, sets or [], grid or [], fidelity, limit)
    shown = _shown(show, asked)
    with sweep_progress(output) as progress:
        folder = None if no_cache else points_folder()
        found = answered(asked, pool=pool, folder=folder, progress=progress)
    if output_file is not None:
        write(found, output_file)
    _say(found, output, shown)
    if code := _exit_code(found):
        raise typer.Exit(code)


def pool_choice(jobs: int | None, cluster: str | None) -> PoolChoice:
    """Who plays. Raises `UsageError` for what is no address of a cluster."""
    from twin.answers.executors import PoolChoice

    if cluster is None:
        return PoolChoice(jobs)
    from twin.answers.executors import check_cluster

    if jobs is not None:
        raise typer.BadParameter("does not apply to clusters", param_hint="--jobs")
    check_cluster(cluster)
    return PoolChoice(cluster=cluster)


def _asked(
    path: str, sets: list[str], grid: list[str], fidelity: SweepFidelity | None, limit: int
) -> SweepRequest:
    """What is swept; everything that is wrong with it is reported here."""
    from twin.explore.sweep.grid import ScenarioSource, check_values, grid_of, read_axes
    from twin.explore.sweep.sweep import SweepRequest, refuse_size
    from twin.kinds.base import kind_of
    from twin.loading import load_any
    from twin.scenario import Scenario

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
    of_file = "fast" if loaded.sweep is None else loaded.sweep.fidelity
    return SweepRequest(loaded, source, whole, fidelity.value if fidelity else of_file)


def _shown(show: str | None, asked: SweepRequest) -> tuple[str, ...]:
    """The key figures of the file and of --show. Raises `UsageError` for other names."""
    from twin.errors import FieldError, Origin, Problem, UsageError
    from twin.spec.sweep import check_figure

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
    output.answer(found.to_json(), _sentences(found), [sweep_table(found, shown)])


def _exit_code(found: Sweep) -> int:
    if found.count("fits"):
        return 0
    if found.count("does_not_fit"):
        return DOES_NOT_FIT
    return IMPOSSIBLE if found.count("impossible") == len(found.rows) else BUG


def _sentences(found: Sweep) -> list[str]:
    """How many points ended how, and the ends of the frontier."""
    counted = [(found.count(status), pair) for status, pair in _WORDS.items()]  # pyright: ignore[reportArgumentType]
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
    """One row per point: the fields that vary, whether it fits, its key figures, or why not."""
    from twin.reports.table import headed

    kpis = [kpi for kpi in found.kpis if kpi.key in (*found.kind.headline, *shown)]
    places, best = _places(found), set(found.frontier)
    named = ["", *_headings(found.fields), ""]
    figures = [_HEADINGS.get(kpi.key, kpi.label) for kpi in kpis]
    why = ["why not"] if any(row.outcome.reason for row in found.rows) else []
    heads = (*named, *figures, "to spare", *why)
    left = {*range(len(named)), *range(len(named) + len(figures) + 1, len(heads))}
    table = headed("Points", *heads, left=left)
    for place in places:
        row = found.rows[place]
        cells = _cells(row, found.fields, kpis, marked=place in best)
        table.add_row(*cells[: len(heads)], dim=row.outcome.status != "fits")
    table.caption = _caption(found, len(places))
    return table


def _cells(row: SweepRow, fields: Sequence[str], kpis: Sequence[Kpi], *, marked: bool) -> list[str]:
    from twin.answers.variants import written
    from twin.reports.numbers import gibibytes, show

    outcome = row.outcome
    values = [written(row.values[path]) if path in row.values else "" for path in fields]
    figures = [show(outcome.kpis.get(kpi.key), kpi.unit) if outcome.kpis else "" for kpi in kpis]
    room = "" if outcome.headroom_bytes is None else gibibytes(outcome.headroom_bytes)
    reason = f"{outcome.code} {outcome.reason}".strip()
    return ["*" if marked else "", *values, _STATUS[outcome.status], *figures, room, reason]


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
    if found.fidelity == "fast":
        said += "; times are fast estimates, which leave out that transfers share links"
    more = len(found.rows) - shown
    return said + (f"; {more:,} more points: --output writes all" if more else "")


def _headings(fields: Sequence[str]) -> list[str]:
    """The last key of each path, with those before it where two fields end alike."""
    last = Counter(path.rpartition(".")[2] for path in fields)
    short = {path: path.rpartition(".")[2] for path in fields}
    return [path if last[short[path]] > 1 else short[path] for path in fields]


def _named(found: Sweep, place: int) -> str:
    """A point as one would type it, and what it gives."""
    from twin.answers.variants import written
    from twin.reports.numbers import show

    row = found.rows[place]
    words = " ".join(f"--set {path}={written(value)}" for path, value in row.values.items())
    kpis = [kpi for kpi in found.kpis if kpi.key in found.frontier_by]
    figures = [show(row.outcome.kpis[kpi.key], kpi.unit) for kpi in kpis]
    return f"{words}: {', '.join(figures)}"
