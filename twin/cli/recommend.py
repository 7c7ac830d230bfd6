"""`twin recommend`: how many GPUs, and which layout?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import typer

from twin.answers.nearest import written
from twin.answers.remembered import PRICE, remember, remembered
from twin.cli import search_tables as say
from twin.cli.answer import say_scope, search_progress, sweep_progress, training
from twin.cli.output import (
    DOES_NOT_FIT,
    NOT_AS_EXPECTED,
    Output,
    require_writable,
    write_text,
)
from twin.cli.sweep import BUG, IMPOSSIBLE, pool_choice
from twin.cli.verbs import naming_options
from twin.errors import Problem, UsageError
from twin.explore.search.candidates import Decision, contest, fixed_contest
from twin.explore.search.recommend import recommend as search
from twin.explore.search.recommendation import PATIENCE, Recommendation, SearchRequest
from twin.explore.search.scale import Scaling, Sizes, scale
from twin.explore.search.space import Space, goal_of, narrowed, nodes_of, quantity, space
from twin.explore.search.thresholds import BreakEven, break_even
from twin.explore.sweep.grid import read_axes
from twin.explore.sweep.points import points_folder
from twin.loading import load_any, resolve
from twin.scenario import Scenario

ANY: Final = "any"
"""Of `--stack`: layouts that no software may run are tried, too."""
_PRICED: Final = "cost.gpu_hour="


def recommend(  # noqa: PLR0913  one parameter per option of the command line
    *,
    scenario: str,
    gpus: str | None,
    target: str | None,
    budget: str | None,
    max_throughput: bool,
    fixed_layout: bool,
    axis: list[str],
    sets: list[str],
    stack: str | None,
    patience: str | None,
    path: Path | None,
    force: bool,
    most: int,
    thresholds: bool,
    jobs: int | None,
    cluster: str | None,
    no_cache: bool,
    output: Output,
) -> int | None:
    """How many GPUs, and which layout?"""

    if max_throughput and (target or budget):
        message = "this is the default; omit --target and --budget"
        raise typer.BadParameter(message, param_hint="--max-throughput")
    with naming_options("recommend"):
        goal = goal_of(target, budget)
        seconds = quantity("patience", patience, "seconds") if patience else PATIENCE
    if path is not None:
        require_writable(path, force=force)
    pool = pool_choice(jobs, cluster)
    chosen = [f"software={stack}"] if stack and stack != ANY else []
    loaded = training(load_any(scenario, [*sets, *chosen]), "recommend")
    if loaded.cost is None and (price := remembered(PRICE)):
        output.message(f"{price} per GPU-hour, as said before; `--set {_PRICED}` changes it.")
        chosen.append(f"{_PRICED}{price}")
        loaded = training(load_any(scenario, [*sets, *chosen]), "recommend")
    for one in sets:
        if one.startswith(_PRICED):
            remember(PRICE, one.removeprefix(_PRICED))
    say_scope(loaded)
    nodes = nodes_of(loaded, gpus) if gpus else (loaded.cluster.nodes,)
    if goal.usd is not None and loaded.cost is None:
        _refuse_budget()
    folder = None if no_cache else points_folder()
    if fixed_layout:
        if axis:
            raise typer.BadParameter("a fixed layout has no axes", param_hint="--axis")

        with sweep_progress(output) as told:
            found = scale(loaded, Sizes(nodes, goal), pool=pool, folder=folder, progress=told)
        decision = partial(fixed_contest, found, pool=pool, folder=folder)
    else:
        whole = _space(loaded, nodes, axis, any_stack=stack == ANY)
        with search_progress(output) as told:
            found = search(SearchRequest(whole, goal, pool, folder, most, told, seconds))
        decision = partial(contest, found)
    must = _break_even(decision, output) if thresholds else None
    code = _say(found, output, must)
    if path is not None and (winner := winning(found)) is not None:
        write_text(path, resolve(load_any(scenario, [*sets, *chosen, *winner])), force=force)
        output.message(f"Wrote {path}. `twin run {path}` simulates it.")
    return code


def winning(found: Recommendation | Scaling) -> list[str] | None:
    """What is recommended, as `--set` takes it; None where nothing is."""
    if found.pick is None:
        return None
    if isinstance(found, Scaling):
        return [f"cluster.nodes={found.rows[found.pick][0]}"]
    overrides = found.pick.layout.overrides(found.asked.scenario)
    return [f"{path}={written(value)}" for path, value in overrides.items()]


def _break_even(decision: Callable[..., Decision], output: Output) -> BreakEven:
    """What must be true for a decision."""

    with search_progress(output) as progress:
        return break_even(decision(progress=progress))


def _refuse_budget() -> NoReturn:
    """Refuse a budget for what has no price."""

    fix = "add `cost: {gpu_hour: 2.0USD}`, or write `--set cost.gpu_hour=2.0USD`"
    raise UsageError([Problem("TW053", "", "a budget needs a price, and there is none", fix)])


def _space(
    scenario: Scenario, nodes: tuple[int, ...], axes: list[str], *, any_stack: bool
) -> Space:
    """The space of the search."""

    whole = space(scenario, nodes, any_stack=any_stack)
    return narrowed(whole, {axis.path: axis.values for axis in read_axes(axes)})


def _say(found: Recommendation | Scaling, output: Output, must: BreakEven | None) -> int:
    """The answer as JSON, or in words and tables; the exit code."""

    document = found.to_json() | (must.to_json() if must else {})
    output.answer(document, say.search_words(found), say.search_tables(found))
    if must is not None:
        for sentence in say.threshold_words(must):
            output.sentence(sentence)
        if output.tables:
            output.show(*say.threshold_tables(must))
    return unanswered(found.ends) if found.pick is None else 0


def unanswered(status: set[str]) -> int:
    """The exit code where nothing is recommended, by how layouts ended."""
    if "fits" in status:
        return NOT_AS_EXPECTED
    if "failed" in status:
        return BUG
    return DOES_NOT_FIT if "does_not_fit" in status else IMPOSSIBLE
