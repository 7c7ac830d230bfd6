"""`twin recommend`: how many GPUs, and which layout?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from twin.cli.answer import say_scope, search_progress, sweep_progress, training
from twin.cli.options import JsonOption, NoCacheOption, QuietOption, ScenarioArgument, SetOption
from twin.cli.output import DOES_NOT_FIT, NOT_AS_EXPECTED, Output
from twin.cli.sweep import BUG, IMPOSSIBLE, ClusterOption, JobsOption, pool_choice

if TYPE_CHECKING:
    from twin.explore.search.candidates import Decision
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
        help="Compare these sizes: 256:4096[:STEP] or 256,512 [default: the scenario's].",
    ),
]
_TargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="DAYS", help="Find the cheapest within this time: 60d."),
]
_BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", metavar="USD", help="Find the fastest within this budget: 20MUSD."),
]
_FastestOption = Annotated[
    bool, typer.Option("--max-throughput", help="Find the fastest at any cost [default].")
]
_FixedOption = Annotated[
    bool, typer.Option("--fixed-layout", help="Keep the scenario's layout on every size.")
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
    int, typer.Option("--most", min=1, help="Simulate at most this many layouts per size.")
]
_ThresholdsOption = Annotated[
    bool, typer.Option("--thresholds", help="Show break-even points: when would another plan win?")
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

    Bounds every layout on the sizes asked for, estimates those that may be best, and simulates the
    leaders. Exits with 5 when nothing meets the target or the
    budget, with 4 when nothing fits, with 3 when no layout is possible at all.
    """
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
        from twin.explore.search.candidates import fixed_contest
        from twin.explore.search.scale import Sizes, scale

        with sweep_progress(output) as told:
            found = scale(loaded, Sizes(nodes, goal), pool=pool, folder=folder, progress=told)
        decision = partial(fixed_contest, found, pool=pool, folder=folder)
    else:
        from twin.explore.search.candidates import contest
        from twin.explore.search.recommend import SearchRequest
        from twin.explore.search.recommend import recommend as search

        whole = _space(loaded, nodes, axis or [])
        with search_progress(output) as told:
            found = search(SearchRequest(whole, goal, pool, folder, most, told))
        decision = partial(contest, found)
    must = _break_even(decision, output) if thresholds else None
    _say(found, output, must)


def _break_even(decision: Callable[..., Decision], output: Output) -> BreakEven:
    """What must be true for a decision."""
    from twin.explore.search.thresholds import break_even

    with search_progress(output) as progress:
        return break_even(decision(progress=progress))


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
        message = "this is the default; omit --target and --budget"
        raise typer.BadParameter(message, param_hint="--max-throughput")

    def value(flag: str, text: str | None, dimension: units.Dimension) -> float | None:
        if text is None:
            return None
        origin = Origin(flag, 1, 1, text, len(text))
        try:
            found = units.parse(text, dimension)
        except units.QuantityError as error:
            raise UsageError([Problem("TW433", "", error.message, error.hint, origin)]) from None
        if found <= 0:
            message = f"`{text}` must be positive"
            raise UsageError([Problem("TW433", "", message, "ask for more", origin)])
        return found

    seconds = value("--target", target, "seconds")
    return Goal(None if seconds is None else seconds / DAY, value("--budget", budget, "usd"))


def _space(scenario: Scenario, nodes: tuple[int, ...], axes: list[str]) -> Space:
    """The space of the search."""
    from twin.explore.search.space import narrowed, space
    from twin.explore.sweep.grid import read_axes

    return narrowed(space(scenario, nodes), {axis.path: axis.values for axis in read_axes(axes)})


def _say(found: Recommendation | Scaling, output: Output, must: BreakEven | None) -> None:
    """The answer as JSON, or in words and tables; exits with its code."""
    from twin.cli import search_tables as say

    document = found.to_json() | (must.to_json() if must else {})
    output.answer(document, say.search_words(found), say.search_tables(found))
    if must is not None:
        for sentence in say.threshold_words(must):
            output.sentence(sentence)
        if output.tables:
            output.show(*say.threshold_tables(must))
    if found.pick is None:
        raise typer.Exit(_unanswered(found.ends))


def _unanswered(status: set[str]) -> int:
    """The exit code where nothing is recommended, by how layouts ended."""
    if "fits" in status:
        return NOT_AS_EXPECTED
    if "failed" in status:
        return BUG
    return DOES_NOT_FIT if "does_not_fit" in status else IMPOSSIBLE
