"""`twin compare`: what changed between two or more scenarios?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twin.cli.options import (
    Fidelity,
    FidelityOption,
    JsonOption,
    NoCacheOption,
    QuietOption,
    SetOption,
)
from twin.cli.output import DOES_NOT_FIT, NOT_AS_EXPECTED, Output

if TYPE_CHECKING:
    from twin.answers import Run
    from twin.explore.study import Attribution
    from twin.reports import Comparison
    from twin.reports.limits import Failure, Limit
    from twin.scenario import AnyScenario

Scenarios = Annotated[
    list[str],
    typer.Argument(metavar="SCENARIO", help="Scenario files or names; the first is the baseline."),
]
_FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="LIMIT",
        help="A change from the baseline that is too much, such as 'step_seconds > +2%': exit 5. "
        "Repeat for more.",
    ),
]
_NoAttributionOption = Annotated[
    bool, typer.Option("--no-attribution", help="Leave out which edit the change comes from.")
]


def compare(  # noqa: PLR0913  one parameter per option of the command line
    scenarios: Scenarios,
    *,
    sets: SetOption = None,
    fail_if: _FailIfOption = None,
    no_attribution: _NoAttributionOption = False,
    fidelity: FidelityOption = Fidelity.EVENTS,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    no_cache: NoCacheOption = False,
) -> None:
    """What changed between two or more scenarios?

    Runs them all; the first is the baseline. `--set` applies to every one of them. Exits with 4
    when one of them does not fit in memory, else with 5 when one is beyond a limit of `--fail-if`.
    """
    if len(scenarios) < 2:
        raise typer.BadParameter("compare needs at least two scenarios", param_hint="SCENARIO")
    from twin.cli.answer import answered
    from twin.cli.side_by_side import refuse_limits
    from twin.loading import load_any
    from twin.reports import compare as compare_reports
    from twin.reports.limits import failures
    from twin.scenario import UpdateScenario

    output, limits = Output(as_json, quiet), _limits(fail_if or [])
    loaded = [load_any(one, sets or []) for one in scenarios]
    if all(isinstance(one, UpdateScenario) for one in loaded):
        from twin.cli import weight_update

        updates = [one for one in loaded if isinstance(one, UpdateScenario)]
        named = zip(updates, scenarios, strict=True)
        reports = [weight_update.answer(one, path, sets or []) for one, path in named]
        raise typer.Exit(weight_update.compare(reports, limits, output))
    _refuse_mixture(loaded)
    trainings = [one for one in loaded if not isinstance(one, UpdateScenario)]
    if trainings[0].rl and trainings[0].rl.iteration:
        from twin.cli import iteration

        both = list(zip(trainings, scenarios, strict=True))
        raise typer.Exit(iteration.compare(both, sets or [], limits, output))
    if trainings[0].rl:
        from twin.cli import rollout

        raise typer.Exit(rollout.compare(trainings, limits, output))
    refuse_limits(limits, trainings[0].kind, trainings[0].kpis)
    runs = [
        answered(path, sets or [], output, cache=not no_cache, fidelity=fidelity, loaded=one)
        for path, one in zip(scenarios, trainings, strict=True)
    ]
    comparison = compare_reports([run.report for run in runs])
    # Nobody sees it in a quiet answer, and it takes further runs.
    wanted = not no_attribution and (as_json or not quiet)
    attributions = _attributions(runs, output) if wanted else []
    failed = failures(comparison, limits)
    output.document(_document(comparison, attributions, failed))
    _say(comparison, attributions, failed, output)
    if not all(report.fits for report in comparison.reports):
        raise typer.Exit(DOES_NOT_FIT)
    if failed:
        raise typer.Exit(NOT_AS_EXPECTED)


def _refuse_mixture(loaded: Sequence[AnyScenario]) -> None:
    """Raise `UsageError` where scenarios have answers of several kinds."""
    from twin.errors import Problem, UsageError

    kinds = {_kind(one): one.name for one in loaded}
    if len(kinds) > 1:
        (kind, name), (other, another), *_ = kinds.items()
        message = f"`{name}` is {kind}, and `{another}` is {other}"
        hint = "compare scenarios of one kind, such as iterations with iterations"
        raise UsageError([Problem("TW168", "", message, hint)])


def _kind(one: AnyScenario) -> str:
    """What `twin run` answers of a scenario."""
    from twin.scenario import UpdateScenario

    return "a weight update" if isinstance(one, UpdateScenario) else one.kind


def _limits(written: Sequence[str]) -> tuple[Limit, ...]:
    """The limits of `--fail-if`. Raises `UsageError` with all that are none."""
    from twin.errors import FieldError, Origin, Problem, UsageError
    from twin.reports.limits import read_limit
    from twin.units import BareNumberError, QuantityError

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
    from twin.cli.answer import progress_bar
    from twin.explore.study import attribution

    base, *others = runs
    found: list[Attribution] = []
    for other in others:
        played = (base.report.breakdown_ns, other.report.breakdown_ns)
        with progress_bar(output, "which edit made the difference") as progress:
            found.append(
                attribution(base.scenario, other.scenario, played=played, progress=progress)
            )
    return found


def _document(
    comparison: Comparison, attributions: Sequence[Attribution], failed: Sequence[Failure]
) -> dict[str, Any]:
    """The comparison as one JSON document. `attribution` is seconds by cause of the first
    candidate, null where it was not wanted; each candidate's own, in full, is with it."""
    document = comparison.to_json()
    for candidate, found in zip(document["candidates"], attributions, strict=False):
        candidate["attribution"] = found.to_json()
    first = attributions[0] if attributions else None
    document["attribution"] = first and {one.name: one.ns / 1e9 for one in first.causes}
    document["attribution_ns"] = first and {one.name: one.ns for one in first.causes}
    document["failures"] = [asdict(one) for one in failed]
    return document


def _say(
    comparison: Comparison,
    attributions: Sequence[Attribution],
    failed: Sequence[Failure],
    output: Output,
) -> None:
    """The comparison in words and tables."""
    from twin.reports import difference
    from twin.reports.limits import sentence

    for delta in comparison.deltas:
        output.sentence(difference(comparison.reports[0], delta))
    for failure in failed:
        output.sentence(sentence(failure))
    if output.tables:
        from twin.cli import tables

        output.show(*tables.comparison_tables(comparison, attributions))
