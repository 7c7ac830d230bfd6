"""`twin recommend`: how many GPUs, and which layout?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from twin.cli.options import JsonOption, NoCacheOption, QuietOption, ScenarioArgument, SetOption
from twin.cli.output import DOES_NOT_FIT, NOT_AS_EXPECTED, Output
from twin.cli.progress import search_progress, sweep_progress
from twin.cli.sweep import BUG, IMPOSSIBLE, ClusterOption, JobsOption, pool_choice

if TYPE_CHECKING:
    from twin.explore.search.goal import Goal
    from twin.explore.search.recommend import Recommendation
    from twin.explore.search.scale import Scaling
    from twin.explore.search.space import Space
    from twin.explore.search.thresholds import BreakEven
    from twin.scenario import Scenario

_GpusOption = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="LOW:HIGH",
        help="Sizes of the cluster: 256:4096 (in steps of 256), 256:4096:512, or 256,512,2048. "
        "Default: the scenario's.",
    ),
]
_TargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="DAYS", help="The cheapest that is done in time: 60d."),
]
_BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", metavar="USD", help="The fastest within a budget: 20MUSD."),
]
_FastestOption = Annotated[
    bool, typer.Option("--max-throughput", help="The fastest, whatever it costs (the default).")
]
_FixedOption = Annotated[
    bool, typer.Option("--fixed-layout", help="Only the scenario's own layout, on every size.")
]
_AxisOption = Annotated[
    list[str] | None,
    typer.Option(
        "--axis",
        metavar="parallel.X=V1,V2",
        help="Try these values of one degree only; repeat for more.",
    ),
]
_MostOption = Annotated[
    int, typer.Option("--most", min=1, help="Layouts per size that are played at most.")
]

_ThresholdsOption = Annotated[
    bool,
    typer.Option(
        "--thresholds",
        help="Say what must be true: the values of rates, efficiencies, imbalance, losses, memory "
        "and price at which the decision flips, and what wins then.",
    ),
]


def recommend(  # noqa: PLR0913  one parameter per option of the command line
    scenario: ScenarioArgument,
    *,
    gpus: _GpusOption = None,
    target: _TargetOption = None,
    budget: _BudgetOption = None,
    max_throughput: _FastestOption = False,
    fixed_layout: _FixedOption = False,
    axis: _AxisOption = None,
    sets: SetOption = None,
    most: _MostOption = 16,
    thresholds: _ThresholdsOption = False,
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    no_cache: NoCacheOption = False,
) -> None:
    """How many GPUs, and which layout?

    Judges every way to cut the model over clusters of the sizes asked for, plays those that may be
    best, and confirms the leaders by events. Exits with 5 when nothing meets the target or the
    budget, with 4 when nothing fits, with 3 when no layout is possible at all.
    """
    from twin.cli.answer import say_scope, training
    from twin.explore.search.goal import nodes_of
    from twin.explore.sweep.points import points_folder
    from twin.loading import load_any

    goal = _goal(target, budget, fastest=max_throughput)
    pool, output = pool_choice(jobs, cluster), Output(as_json, quiet)
    loaded = training(load_any(scenario, sets or []), "recommend")
    say_scope(loaded)
    nodes = nodes_of(loaded, gpus) if gpus else (loaded.cluster.nodes,)
    if goal.usd is not None and loaded.cost is None:
        _refuse_budget()
    folder = None if no_cache else points_folder()
    if fixed_layout:
        if axis:
            raise typer.BadParameter("a fixed layout has no axes", param_hint="--axis")
        from twin.explore.search.scale import Sizes, scale

        with sweep_progress(output) as told:
            rows = scale(loaded, Sizes(nodes, goal), pool=pool, folder=folder, progress=told)
        must = None
        if thresholds:
            from twin.explore.search.candidates import fixed_contest
            from twin.explore.search.thresholds import break_even

            with search_progress(output) as progress:
                must = break_even(fixed_contest(rows, pool=pool, folder=folder, progress=progress))
        _say_scaling(rows, output, must)
        return
    from twin.explore.search.recommend import SearchRequest
    from twin.explore.search.recommend import recommend as found_by

    whole = _space(loaded, nodes, axis or [])
    with search_progress(output) as progress:
        found = found_by(SearchRequest(whole, goal, pool, folder, most, progress))
        must = None
        if thresholds:
            from twin.explore.search.candidates import contest
            from twin.explore.search.thresholds import break_even

            must = break_even(contest(found))
    _say(found, output, must)


def _refuse_budget() -> NoReturn:
    """Refuse a budget for what has no price."""
    from twin.errors import Problem, UsageError

    fix = "add `cost: {gpu_hour: 2.0USD}`, or write `--set cost.gpu_hour=2.0USD`"
    raise UsageError([Problem("TW053", "", "a budget needs a price, and there is none", fix)])


def _goal(target: str | None, budget: str | None, *, fastest: bool) -> Goal:
    """What is asked for. Raises `UsageError` for what is no time or no money."""
    from twin import units
    from twin.errors import Origin, Problem, UsageError
    from twin.explore.search.goal import DAY, Goal

    if fastest and (target or budget):
        message = "it is what no --target and no --budget ask for"
        raise typer.BadParameter(message, param_hint="--max-throughput")
    found: dict[str, float] = {}
    asked = (("--target", target, "seconds"), ("--budget", budget, "usd"))
    for flag, text, dimension in asked:
        if text is None:
            continue
        try:
            found[flag] = units.parse(text, dimension)  # pyright: ignore[reportArgumentType]
        except units.QuantityError as error:
            origin = Origin(flag, 1, 1, text, len(text))
            raise UsageError([Problem("TW433", "", error.message, error.hint, origin)]) from None
        if found[flag] <= 0:
            origin = Origin(flag, 1, 1, text, len(text))
            raise UsageError([Problem("TW433", "", f"`{text}` is nothing", "ask for more", origin)])
    days = found["--target"] / DAY if "--target" in found else None
    return Goal(days, found.get("--budget"))


def _space(scenario: Scenario, nodes: tuple[int, ...], axes: list[str]) -> Space:
    """The space of the search."""
    from twin.explore.search.space import narrowed, space
    from twin.explore.sweep.grid import read_axes

    return narrowed(space(scenario, nodes), {one.path: one.values for one in read_axes(axes)})


def _say(found: Recommendation, output: Output, must: BreakEven | None) -> None:
    """The recommendation as JSON, or in words and tables; exits with its code."""
    from twin.cli.search_tables import recommendation_tables, recommendation_words

    output.document(found.to_json() | (must.to_json() if must else {}))
    for sentence in recommendation_words(found):
        output.sentence(sentence)
    if output.tables:
        output.show(*recommendation_tables(found))
    _say_thresholds(must, output)
    if found.pick is None:
        raise typer.Exit(_unanswered(found.ends))


def _say_thresholds(must: BreakEven | None, output: Output) -> None:
    """What must be true, if that was asked."""
    if must is None:
        return
    from twin.cli.search_tables import threshold_tables, threshold_words

    for sentence in threshold_words(must):
        output.sentence(sentence)
    if output.tables:
        output.show(*threshold_tables(must))


def _say_scaling(found: Scaling, output: Output, must: BreakEven | None) -> None:
    """The scaling as JSON, or in words and a table; exits with its code."""
    from twin.cli.search_tables import scaling_table, scaling_words

    output.document(found.to_json() | (must.to_json() if must else {}))
    output.sentence(scaling_words(found))
    if output.tables:
        output.show(scaling_table(found))
    _say_thresholds(must, output)
    if found.pick is None:
        raise typer.Exit(_unanswered({one.status for _, one in found.rows}))


def _unanswered(status: set[str]) -> int:
    """The exit code where nothing is recommended, by how layouts ended."""
    if "fits" in status:
        return NOT_AS_EXPECTED
    if "failed" in status:
        return BUG
    return DOES_NOT_FIT if "does_not_fit" in status else IMPOSSIBLE
