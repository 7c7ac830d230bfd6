"""`twin explain`: where does a number come from?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from twin.cli.options import (
    Fidelity,
    FidelityOption,
    JsonOption,
    NoCacheOption,
    QuietOption,
    ScenarioArgument,
    SetOption,
)
from twin.cli.output import DOES_NOT_FIT, Output

if TYPE_CHECKING:
    from rich.tree import Tree

    from twin.reports.explain import Explanation

KpiArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="KPI",
        help="A key figure, named as in the JSON: step_seconds, mfu; or a topic: overlap, passes, "
        "links, hidden-expert, tornado, inference, serving. If you write none, all names.",
    ),
]
_FieldOption = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="A.B[=LOW..HIGH]",
        help="With tornado: this field only, over its own range or between two values; repeat for "
        "more.",
    ),
]


def explain(  # noqa: PLR0913, PLR0917  one parameter per option of the command line
    scenario: ScenarioArgument,
    kpi: KpiArgument = None,
    sets: SetOption = None,
    fields: _FieldOption = None,
    fidelity: FidelityOption = Fidelity.EVENTS,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    no_cache: NoCacheOption = False,
) -> None:
    """Where does a number come from?

    Prints how a key figure follows from what was played, counted and written, down to each catalog
    number with its file and source. The topics: `overlap`, whether the all-to-all of the experts
    can hide under kernels; `passes`, how long each pass takes by itself; `links`, how each class of
    link is used; `hidden-expert`, the largest degree of expert parallelism that stays hidden;
    `tornado`, which uncertain numbers matter; `inference`, what serving the model takes; `serving`,
    tokens per second of the scenario's engines against concurrent users and context.
    """
    from twin.cli.topics import TOPICS, Asked, topic

    output = Output(as_json, quiet)
    if fields and kpi != "tornado":
        raise typer.BadParameter("only a tornado has fields", param_hint="--field")
    if kpi in TOPICS:
        asked = Asked(scenario, sets or [], fields or [], fidelity, not no_cache)
        if code := topic(kpi, asked, output):
            raise typer.Exit(code)
        return
    from twin.reports.explain import VERSION, named
    from twin.reports.explain import explain as derivation

    kpi = _wanted() if kpi is None else named(kpi, TOPICS)
    from twin.cli.answer import answered

    run = answered(
        scenario, sets or [], output, cache=not no_cache, fidelity=fidelity, step_of="explain"
    )
    found = derivation(run.plan, run.trace, run.report, kpi)
    output.document(
        {
            "version": VERSION,
            "name": run.scenario.name,
            "hash": run.report.hash,
            "kpi": kpi,
            "explanation": found.to_json(),
        }
    )
    output.sentence(f"{found.name} = {found.shown}")
    if output.tables:
        output.show(tree(found))
    if not run.report.fits:
        raise typer.Exit(DOES_NOT_FIT)


def _wanted() -> NoReturn:
    """Say which key figures there are."""
    from twin.cli.topics import TOPICS
    from twin.errors import Problem, UsageError
    from twin.reports import KPIS

    names = (*(kpi.key for kpi in KPIS), *TOPICS)
    known = ", ".join(f"`{name}`" for name in names)
    message = "say which key figure or topic to explain"
    raise UsageError([Problem("TW051", "", message, f"one of: {known}")])


def tree(root: Explanation) -> Tree:
    """The derivation as a tree; what was said above is not said again."""
    from rich.tree import Tree

    said: set[Explanation] = set()

    def grow(branch: Tree, children: Iterable[Explanation]) -> Tree:
        for child in children:
            again = child in said
            said.add(child)
            below = branch.add(_label(child, again=again))
            if not again:
                grow(below, child.children)
        return branch

    return grow(Tree(_label(root)), root.children)


def _label(node: Explanation, *, again: bool = False) -> str:
    """Name, value and formula on one line, the source on the next."""
    if again:
        return f"{node.name} = {node.shown}, as above"
    formula = f" = {node.formula}" if node.formula else ""
    lines = [f"{node.name} = {node.shown}{formula}", node.source]
    return "\n".join(line for line in lines if line)
