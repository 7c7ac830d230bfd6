"""What `twin explain` says beside key figures: topics that need more than one number, such as
whether the all-to-all can hide, how links are used, and which uncertain numbers matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from twin.cli.options import Fidelity
from twin.cli.output import DOES_NOT_FIT, Output

if TYPE_CHECKING:
    from twin.kinds.base import Fidelity as Played

VERSION: Final = 1
"""Version of the JSON documents."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of a command: which scenario, under which overrides, and how it is answered."""

    scenario: str
    sets: Sequence[str]
    fields: Sequence[str]
    fidelity: Fidelity
    cache: bool

    @property
    def played(self) -> Played:
        """The fidelity as the twin's own functions name it."""
        return self.fidelity.value


def topic(name: str, asked: Asked, output: Output) -> int:
    """Answer a topic; returns the exit code."""
    return TOPICS[name](asked, output)


def _overlap(asked: Asked, output: Output) -> int:
    """Window and demand of each kind of layer, and what was exposed in the end."""
    from twin.cli.answer import answered
    from twin.reports.overlap import sentence

    run = answered(asked.scenario, asked.sets, output, cache=asked.cache, fidelity=asked.fidelity)
    report = run.report
    document = report.to_json()
    output.document(
        _head(report.name, report.hash, "overlap")
        | {key: document[key] for key in ("step_ns", "exposure", "overlap")}
    )
    output.sentence(sentence(report.overlap))
    for one in report.warnings:
        if one.code in {"all-to-all-as-alone", "free-overlap"}:
            output.sentence(one.message)
    if output.tables:
        from twin.cli import overlap_tables

        output.show(overlap_tables.overlap_table(report.overlap))
        output.show(*overlap_tables.exposure_table(report))
    return 0 if report.fits else DOES_NOT_FIT


def _passes(asked: Asked, output: Output) -> int:
    """How long each pass of a chunk takes by itself, and two passes of a pair together."""
    from twin.cli.answer import training
    from twin.loading import load_any, scenario_hash
    from twin.planning import plan
    from twin.reports.passes import passes, sentence

    scenario = training(load_any(asked.scenario, asked.sets))
    found = passes(plan(scenario))
    output.document(
        _head(scenario.name, scenario_hash(scenario), "passes")
        | {"passes": [one.to_json() for one in found]}
    )
    output.sentence(sentence(found))
    if output.tables:
        from twin.cli import overlap_tables

        output.show(overlap_tables.pass_table(found))
    return 0


def _links(asked: Asked, output: Output) -> int:
    """Every class of link with its use, and where the bottleneck is."""
    from twin.cli.answer import answered
    from twin.reports.network_use import network_use, sentence

    if asked.fidelity is Fidelity.FAST:
        message = "the fast path does not know when links are in use: leave --fidelity out"
        raise typer.BadParameter(message, param_hint="--fidelity")
    run = answered(asked.scenario, asked.sets, output, cache=asked.cache, fidelity=asked.fidelity)
    use = network_use(run.plan, run.trace)
    links = [link.to_json() for link in use.links]
    output.document(_head(run.report.name, run.report.hash, "links") | {"links": links})
    output.sentence(sentence(use))
    if output.tables:
        from twin.cli import overlap_tables

        output.show(overlap_tables.link_table(use))
    return 0 if run.report.fits else DOES_NOT_FIT


def _hidden_expert(asked: Asked, output: Output) -> int:
    """The largest degree of expert parallelism that stays hidden."""
    from twin.cli.answer import progress_bar, training
    from twin.explore.study.hidden import hidden_expert, sentence
    from twin.loading import load_any, scenario_hash
    from twin.planning.caveats import idle_rates

    scenario = training(load_any(asked.scenario, asked.sets))
    with progress_bar(output, "degrees of expert parallelism") as progress:
        found = hidden_expert(scenario, progress, fidelity=asked.played, cache=asked.cache)
    output.document(
        _head(scenario.name, scenario_hash(scenario), "hidden-expert")
        | {"fidelity": asked.played}
        | found.to_json()
    )
    output.sentence(sentence(found))
    for one in idle_rates(scenario):
        output.sentence(one.message)
    if output.tables:
        from twin.cli import overlap_tables

        output.show(overlap_tables.hidden_table(found))
    return 0


def _tornado(asked: Asked, output: Output) -> int:
    """Which uncertain numbers, or chosen fields, move the step most."""
    from twin.cli.answer import progress_bar, training
    from twin.explore.study.influence import influence, read_asked, sentence
    from twin.loading import load_any, scenario_hash

    scenario, fields = training(load_any(asked.scenario, asked.sets)), read_asked(asked.fields)
    with progress_bar(output, "both ends of every number") as progress:
        found = influence(scenario, progress, asked=fields, fidelity=asked.played)
    output.document(
        _head(scenario.name, scenario_hash(scenario), "tornado")
        | {"fidelity": asked.played, "influences": [one.to_json() for one in found]}
    )
    output.sentence(sentence(found))
    if output.tables:
        from twin.cli import overlap_tables

        output.show(overlap_tables.tornado_table(found, asked.played))
    return 0


def _inference(asked: Asked, output: Output) -> int:
    """What serving the model takes at short and long contexts, and with twice the heads."""
    from twin.cli.answer import training
    from twin.loading import load_any, scenario_hash
    from twin.reports.inference import inference, sentence

    scenario = training(load_any(asked.scenario, asked.sets))
    found = inference(scenario.model)
    output.document(_head(scenario.name, scenario_hash(scenario), "inference") | found.to_json())
    output.sentence(sentence(found))
    if output.tables:
        from twin.cli.inference_tables import inference_tables

        output.show(*inference_tables(found))
    return 0


def _serving(asked: Asked, output: Output) -> int:
    """Every engine of the scenario over concurrent users and context, and with twice the heads."""
    from twin.cli.answer import training
    from twin.loading import load_any, scenario_hash
    from twin.reports.serving import heads, sentence, serving, turns

    scenario = training(load_any(asked.scenario, asked.sets))
    found = serving(scenario)
    output.document(
        _head(scenario.name, scenario_hash(scenario), "serving")
        | {"engines": [one.to_json() for one in found]}
    )
    for one in found:
        for said in (sentence(one), turns(one), heads(one)):
            if said is not None:
                output.sentence(said)
        if output.tables:
            from twin.cli.serving_tables import serving_tables

            output.show(*serving_tables(one))
    return 0


def _head(name: str, digest: str, about: str) -> dict[str, Any]:
    return {"version": VERSION, "name": name, "hash": digest, "topic": about}


TOPICS: Final[dict[str, Callable[[Asked, Output], int]]] = {
    "overlap": _overlap,
    "passes": _passes,
    "links": _links,
    "hidden-expert": _hidden_expert,
    "tornado": _tornado,
    "inference": _inference,
    "serving": _serving,
}
"""Every topic by its name."""
