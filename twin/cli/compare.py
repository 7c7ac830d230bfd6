"""`twin compare`: what changed between two or more scenarios?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import typer

from twin.answers import Run
from twin.cli.answer import answered, exit_code, progress_bar
from twin.cli.output import NOT_AS_EXPECTED, Output
from twin.errors import FieldError, Origin, Problem, UsageError
from twin.explore.study.attribution import Attribution, attribution
from twin.kinds.base import Fidelity, Kind, kind_of
from twin.loading import load_any
from twin.network.tenants import Layout
from twin.reports.kpis import Failure, Limit, failures, read_limit
from twin.reports.kpis import sentence as failure_sentence
from twin.scenario import Root
from twin.units import BareNumberError, QuantityError


def compare(  # noqa: PLR0913  one parameter per option of the command line
    *,
    scenarios: list[str],
    sets: list[str],
    fail_if: list[str],
    no_attribution: bool,
    together: Layout | None,
    fidelity: Fidelity,
    no_cache: bool,
    output: Output,
) -> int | None:
    """What changed between two or more scenarios?"""
    if len(scenarios) < 2:
        raise typer.BadParameter("compare needs at least two scenarios", param_hint="SCENARIO")

    limits = _limits(fail_if)
    loaded = [load_any(path, sets) for path in scenarios]
    _refuse_mixture(loaded)
    kind = kind_of(loaded[0])
    _refuse_limits(limits, kind)
    shared = None
    if together is not None:
        with progress_bar(output, "on one fabric") as progress:
            shared = kind.together(loaded, together, progress)
    runs = [
        answered(path, sets, output, cache=not no_cache, fidelity=fidelity, loaded=scenario)
        for path, scenario in zip(scenarios, loaded, strict=True)
    ]
    comparison = kind.compare([run.report for run in runs])
    # Nobody sees it in a quiet answer, and it takes further runs.
    wanted = (
        not no_attribution
        and (output.json or not output.quiet)
        and "attribution" not in kind.refusals
    )
    attributions = _attributions(runs, output) if wanted else []
    failed = failures(comparison.deltas, limits)
    sentences = (*comparison.sentences(), *map(failure_sentence, failed))
    tables = kind.comparison_tables(comparison, attributions)
    document = _document(comparison, attributions, failed)
    if shared is not None:
        document |= {"together": shared.to_json()}
        sentences, tables = (*sentences, *shared.sentences()), (*tables, *shared.tables())
    output.answer(document, sentences, tables)
    unfit = [run.report for run in runs if not run.report.fits]
    code = min((exit_code(report, 0) for report in unfit), default=0)
    return code or (NOT_AS_EXPECTED if failed else 0)


def _refuse_mixture(loaded: Sequence[Root]) -> None:
    """Raise `UsageError` where scenarios have answers of several kinds."""

    titles = {kind_of(scenario).title: scenario.name for scenario in loaded}
    if len(titles) > 1:
        (title, name), (other, another), *_ = titles.items()
        message = f"`{name}` is {title}, and `{another}` is {other}"
        hint = "compare scenarios of one kind, such as iterations with iterations"
        raise UsageError([Problem("TW168", "", message, hint)])


def _refuse_limits(limits: Sequence[Limit], kind: Kind) -> None:
    """Raise `UsageError` TW152 for limits on figures that this kind of work has not."""

    known = [kpi.key for kpi in kind.kpis]
    fix = f"write one of: {', '.join(known)}"
    problems = [
        Problem("TW152", "", f"{kind.title} has no `{limit.kpi.key}`", fix)
        for limit in limits
        if limit.kpi.key not in known
    ]
    if problems:
        raise UsageError(problems)


def _limits(written: Sequence[str]) -> tuple[Limit, ...]:
    """The limits of `--fail-if`. Raises `UsageError` with all that are none."""

    limits: list[Limit] = []
    problems: list[Problem] = []
    for number, text in enumerate(written, 1):
        origin = Origin("--fail-if", number, 1, text, len(text))
        try:
            limits.append(read_limit(text))
        except FieldError as error:
            problems.append(Problem(error.code, "", error.message, error.hint, origin))
        except QuantityError as error:
            code = "TW012" if isinstance(error, BareNumberError) else "TW013"
            problems.append(Problem(code, "", error.message, error.hint, origin))
    if problems:
        raise UsageError(problems)
    return tuple(limits)


def _attributions(runs: Sequence[Run], output: Output) -> list[Attribution]:
    """What each candidate's difference from the baseline comes from."""

    base, *others = runs
    found: list[Attribution] = []
    for other in others:
        played = (base.report.breakdown_ns, other.report.breakdown_ns)
        with progress_bar(output, "which edit made the difference") as progress:
            answer = attribution(base.scenario, other.scenario, played=played, progress=progress)
        found.append(answer)
    return found


def _document(
    comparison: Any, attributions: Sequence[Attribution], failed: Sequence[Failure]
) -> dict[str, Any]:
    """The comparison as one JSON document. `attribution` is seconds by cause of the first
    candidate, null where it was not wanted; each candidate's own, in full, is with it."""
    document = comparison.to_json()
    document["failures"] = [asdict(failure) for failure in failed]
    if not attributions:
        return document | {"attribution": None}
    for candidate, found in zip(document["candidates"], attributions, strict=False):
        candidate["attribution"] = found.to_json()
    first = attributions[0]
    document["attribution"] = {cause.name: cause.ns / 1e9 for cause in first.causes}
    document["attribution_ns"] = {cause.name: cause.ns for cause in first.causes}
    return document
