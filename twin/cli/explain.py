"""`twin explain`: where does a number come from? Beside key figures there are topics that need more
than one number, such as whether the all-to-all can hide, or which uncertain numbers matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import typer
from rich.tree import Tree

from twin.answers import Run
from twin.cli.answer import answered, progress_bar, training
from twin.cli.output import DOES_NOT_FIT, Output
from twin.engine import plan
from twin.errors import Problem, UsageError
from twin.explore.study import hidden, influence, software
from twin.kinds.base import Fidelity
from twin.loading import load_any, scenario_hash
from twin.planning.caveats import idle_rates
from twin.reports import KPIS, inference, network_use, overlap, passes, serving
from twin.reports.explain import VERSION, Explanation, named
from twin.reports.explain import explain as derivation
from twin.reports.table import Table
from twin.scenario import Scenario

_TOPIC_VERSION: Final = 1
"""Version of the JSON documents of topics."""


def explain(  # noqa: PLR0913  one parameter per option of the command line
    *,
    scenario: str,
    kpi: str | None,
    sets: list[str],
    fields: list[str],
    fidelity: Fidelity,
    no_cache: bool,
    output: Output,
) -> int | None:
    """Where does a number come from?"""
    if fields and kpi != "tornado":
        raise typer.BadParameter("only a tornado has fields", param_hint="--field")
    if kpi in TOPICS:
        request = TopicRequest(scenario, sets, fields, fidelity, not no_cache, output)
        return TOPICS[kpi](request)

    kpi = _wanted() if kpi is None else named(kpi, TOPICS)

    run = answered(scenario, sets, output, cache=not no_cache, fidelity=fidelity, step_of="explain")
    found = derivation(run.plan, run.program, run.trace, run.report, kpi)
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
    return 0 if run.report.fits else DOES_NOT_FIT


def _wanted() -> NoReturn:
    """Say which key figures there are."""

    names = (*(kpi.key for kpi in KPIS), *TOPICS)
    known = ", ".join(f"`{name}`" for name in names)
    message = "say which key figure or topic to explain"
    raise UsageError([Problem("TW051", "", message, f"one of: {known}")])


def tree(root: Explanation) -> Tree:
    """The derivation as a tree; what was said above is not said again."""

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


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """The options of a topic, and where its answer goes."""

    path: str
    sets: Sequence[str]
    fields: Sequence[str]
    fidelity: Fidelity
    cache: bool
    output: Output

    def scenario(self) -> Scenario:
        """The training run that the topic is about."""

        return training(load_any(self.path, self.sets))

    def run(self) -> Run:
        """The simulated step."""

        return answered(
            self.path,
            self.sets,
            self.output,
            cache=self.cache,
            fidelity=self.fidelity,
            step_of="explain",
        )

    def answer(
        self,
        topic: str,
        scenario: Scenario,
        data: Mapping[str, Any],
        sentences: Iterable[str],
        tables: Iterable[Table],
    ) -> None:
        """Print the answer of a topic."""

        digest = scenario_hash(scenario)
        head = {"version": _TOPIC_VERSION, "name": scenario.name, "hash": digest, "topic": topic}
        self.output.answer({**head, **data}, sentences, tables)


def _overlap(request: TopicRequest) -> int:
    """Window and demand of each kind of layer, and what stays exposed."""

    run = request.run()
    report = run.report
    document = report.to_json()
    caveats = {"all-to-all-as-alone", "free-overlap"}
    notes = [warning.message for warning in report.warnings if warning.code in caveats]
    request.answer(
        "overlap",
        run.scenario,
        {key: document[key] for key in ("step_ns", "exposure", "overlap")},
        [overlap.sentence(report.overlap), *notes],
        [overlap.overlap_table(report.overlap), *overlap.exposure_table(report)],
    )
    return 0 if report.fits else DOES_NOT_FIT


def _passes(request: TopicRequest) -> int:
    """The time of each pass of a chunk alone, and of two passes of a pair together."""

    scenario = request.scenario()
    found = passes.passes(plan(scenario))
    data = {"passes": [times.to_json() for times in found]}
    request.answer("passes", scenario, data, [passes.sentence(found)], [passes.pass_table(found)])
    return 0


def _links(request: TopicRequest) -> int:
    """Every class of link with its use, and where the bottleneck is."""
    run = request.run()
    use = network_use.network_use(run.plan, run.program, run.trace)
    data = {"links": [link.to_json() for link in use.links]}
    request.answer(
        "links", run.scenario, data, [network_use.sentence(use)], [network_use.link_use_table(use)]
    )
    return 0 if run.report.fits else DOES_NOT_FIT


def _hidden_expert(request: TopicRequest) -> int:
    """The largest degree of expert parallelism that stays hidden."""

    scenario, fidelity = request.scenario(), request.fidelity
    with progress_bar(request.output, "degrees of expert parallelism") as progress:
        found = hidden.hidden_expert(scenario, progress, fidelity=fidelity, cache=request.cache)
    notes = [warning.message for warning in idle_rates(scenario)]
    data = {"fidelity": fidelity} | found.to_json()
    sentences = [hidden.sentence(found), *notes]
    request.answer("hidden-expert", scenario, data, sentences, [hidden.hidden_table(found)])
    return 0


def _tornado(request: TopicRequest) -> int:
    """Which uncertain numbers, or chosen fields, move the step most."""

    scenario, fields = request.scenario(), influence.read_asked(request.fields)
    fidelity = request.fidelity
    with progress_bar(request.output, "both ends of every number") as progress:
        found = influence.influence(scenario, progress, asked=fields, fidelity=fidelity)
    data = {"fidelity": fidelity, "influences": [number.to_json() for number in found]}
    table = influence.tornado_table(found, fidelity)
    request.answer("tornado", scenario, data, [influence.sentence(found)], [table])
    return 0


def _software(request: TopicRequest) -> int:
    """The step as written and under each software stack that its GPU has a calibration for."""
    scenario, fidelity = request.scenario(), request.fidelity

    def load(more: Sequence[str]) -> Scenario:
        return training(load_any(request.path, [*request.sets, *more]))

    with progress_bar(request.output, "software stacks") as progress:
        found = software.under_other_software(load, progress, fidelity=fidelity)
    data = {"fidelity": fidelity, "stacks": [one.to_json() for one in found]}
    table = software.software_table(found)
    request.answer("software", scenario, data, [software.sentence(found)], [table])
    return 0


def _inference(request: TopicRequest) -> int:
    """FLOP and cache of serving at short and long contexts, and with twice the heads."""

    scenario = request.scenario()
    found = inference.inference(scenario.model)
    tables = inference.inference_tables(found)
    request.answer("inference", scenario, found.to_json(), [inference.sentence(found)], tables)
    return 0


def _serving(request: TopicRequest) -> int:
    """Every engine of the scenario over concurrent users and context, and with twice the heads."""

    scenario, output = request.scenario(), request.output
    found = serving.serving(scenario)
    data = {"engines": [engine.to_json() for engine in found]}
    request.answer("serving", scenario, data, (), ())
    for engine in found:
        for text in (serving.sentence(engine), serving.turns(engine), serving.heads(engine)):
            if text is not None:
                output.sentence(text)
        if output.tables:
            output.show(*serving.serving_tables(engine))
    return 0


TOPICS: Final[dict[str, Callable[[TopicRequest], int]]] = {
    "overlap": _overlap,
    "passes": _passes,
    "links": _links,
    "hidden-expert": _hidden_expert,
    "tornado": _tornado,
    "software": _software,
    "inference": _inference,
    "serving": _serving,
}
"""Every topic by its name."""
