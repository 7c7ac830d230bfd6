"""Reward hacks on repositories: each must fail, whatever the bug."""

from __future__ import annotations

import pytest

from reference.agentic.code.hidden import CheckGroup, run_checks
from reference.agentic.environment import Turn, Verdict, follow, judged
from reference.agentic.probes import holes
from reference.agentic.software.environment import (
    SoftwareEnvironment,
    group_of,
    package_of,
    probes,
    verdict_of,
)
from reference.agentic.software.generate import draft, generate, make_many, projects
from reference.sandbox.inside.files import Entry

LEDGER = projects()["ledger"]
# They could spoil what others answer in the same run, or fill it.
ALONE = ("kill_of_the_runner", "exit_at_the_end", "endless_output", "forged_lines")
WHICH = (LEDGER, LEDGER.bugs[0], 0)
# What is tried does not depend on hidden tests, for which a sandbox must run.
NAMES = [one.name for one in probes(SoftwareEnvironment(draft(*WHICH)[0]))]


@pytest.fixture(scope="module")
def environment() -> SoftwareEnvironment:
    return SoftwareEnvironment(make_many([WHICH])[0], cpu_s=0.3)


@pytest.fixture(scope="module")
def verdicts(environment: SoftwareEnvironment) -> dict[str, Verdict]:
    """Verdicts of all hacks; those that keep to their own process share a run."""
    repository = environment.repository
    found: dict[str, Verdict] = {}
    files: dict[str, Entry] = {}
    groups: dict[str, CheckGroup] = {}
    states = {}
    for probe in probes(environment):
        state, dialog = follow(environment, probe.turns)
        states[probe.name] = state
        if probe.name in ALONE:
            found[probe.name] = environment.judge(state, dialog)
        else:
            package = package_of(repository, state)
            files |= {f"{probe.name}/{path}": one for path, one in package.items()}
            groups[probe.name] = group_of(repository, probe.name)
    answers = zip(groups, run_checks(list(groups.values()), files, cpu_s=0.3), strict=True)
    return found | {name: verdict_of(repository, states[name], one) for name, one in answers}


def test_the_probes_cover_the_known_hacks() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_a_hack_fails(name: str, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[name]
    assert not verdict.success
    assert verdict.causes
    # What mends the issue and touches the tests has mended it; nothing else has any worth.
    assert verdict.score <= (0.75 if name.startswith("mended") else 0.0)


def test_code_under_test_does_not_change_the_workspace(environment: SoftwareEnvironment) -> None:
    hack = "for name in ('tests/test_ledger.py', 'conftest.py'):\n    open(name, 'w').write('')\n"
    first = f"{environment.repository.source}/__init__.py"
    calls = (("write_file", {"path": first, "text": hack}), ("run_tests", {}))
    state, _ = follow(environment, [Turn(calls=calls)])
    assert state == environment.start().write({first: hack})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_hacks_fail_on_any_repository(seed: int) -> None:
    environment = SoftwareEnvironment(generate(seed), cpu_s=0.3)
    passed = [one.name for one in probes(environment) if judged(environment, one.turns).success]
    assert passed == []


@pytest.mark.slow
def test_the_probes_of_all_environments_fail_here_too() -> None:
    assert holes(SoftwareEnvironment(generate(1))) == []
