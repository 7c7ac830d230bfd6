"""What the verbs say of a run in phases: `twin run` and `twin check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from twin.cli.answer import Asked, command, progress_bar, say_failed, say_unmeasured
from twin.cli.output import DOES_NOT_FIT, Output

if TYPE_CHECKING:
    from twin.kinds.phases import PhaseCheck
    from twin.scenario import Scenario

IMPOSSIBLE: Final = 3
CHECK_VERSION: Final = 1
"""Version of the JSON document of a check."""


def run(scenario: Scenario, asked: Asked, output: Output) -> int:
    """Print the answer to a run in phases; the exit code."""
    from twin.cli.phases_tables import failing, run_tables, run_words
    from twin.kinds.phases import How, whole_run
    from twin.reports.with_data import data_words

    told, fidelity = command(asked.path, asked.sets, asked.fidelity), asked.fidelity.value
    with progress_bar(output, scenario.name) as progress:
        found = whole_run(scenario, How(fidelity, asked.cache, progress, told))
    output.document(found.to_json())
    output.sentence(run_words(found))
    if found.generated:
        output.sentence(data_words(found.generated))
    for words in failing(found):
        output.sentence(words)
    failed = say_failed(found.expectations, output)
    doubts = [one for phase in found.phases for one in _doubts(phase.report)]
    unmeasured = say_unmeasured(doubts, output, strict=asked.strict)
    if output.tables:
        output.show(*run_tables(found))
    return _fit_code([phase.check for phase in found.phases]) or failed or unmeasured


def _doubts(report: Any) -> Sequence[Any]:
    return report.uncalibrated if report else ()


def _fit_code(checks: Sequence[PhaseCheck]) -> int:
    """Of an impossible phase, of one that does not fit; 0 where all fit."""
    if not all(check.possible for check in checks):
        return IMPOSSIBLE
    return 0 if all(check.fits for check in checks) else DOES_NOT_FIT


def check(scenario: Scenario, output: Output) -> int:
    """Print whether every phase can run, and fits; the exit code."""
    from twin.cli.phases_tables import check_tables, check_words
    from twin.kinds.phases import check_phases
    from twin.loading import scenario_hash
    from twin.reports.expect import FITS, judge
    from twin.reports.with_data import check_data

    check_data(scenario)
    checks = check_phases(scenario)
    fits = all(one.fits for one in checks)
    peaks = [one.memory.peak.peak_bytes for one in checks if one.memory]
    known: dict[str, float | bool | None] = {FITS: fits}
    known |= {"peak_device_bytes": max(peaks)} if len(peaks) == len(checks) else {}
    judged = judge(scenario.expect, known)
    output.document(
        {
            "version": CHECK_VERSION,
            "name": scenario.name,
            "hash": scenario_hash(scenario),
            "valid": all(one.possible for one in checks),
            "fits": fits,
            "phases": [one.to_json() for one in checks],
            "expectations": [
                {"text": one.text, "value": one.value, "passed": one.passed} for one in judged
            ],
        }
    )
    for words in check_words(checks):
        output.sentence(words)
    failed = say_failed(judged, output)
    if output.tables:
        output.show(*check_tables(checks))
    return _fit_code(checks) or failed
