"""Repositories: what seeds give, and that every bug can be seen and mended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import pytest

from reference.agentic.code.hidden import Raises, run_checks
from reference.agentic.environment import Verdict
from reference.agentic.software.environment import (
    SoftwareEnvironment,
    group_of,
    package_of,
    verdict_of,
)
from reference.agentic.software.generate import (
    BuggyRepository,
    choose,
    generate,
    make_many,
    projects,
)
from reference.dialog import numbered

EVERY = [(project, bug) for project in projects().values() for bug in project.bugs]


def _bytes(found: Sequence[BuggyRepository]) -> str:
    return json.dumps([asdict(one) for one in found], default=str, sort_keys=True)


def _judged(asked: Sequence[tuple[BuggyRepository, dict[str, str]]]) -> list[Verdict]:
    """The verdicts on files written over the repositories, all of one run."""
    states, files, groups = [], {}, []
    for at, (repository, changed) in enumerate(asked):
        state = SoftwareEnvironment(repository).start().write(changed)
        states.append(state)
        package = package_of(repository, state)
        files |= {f"{at}/{path}": one for path, one in package.items()}
        groups.append(group_of(repository, str(at)))
    return [
        verdict_of(repository, state, answers)
        for (repository, _), state, answers in zip(
            asked, states, run_checks(groups, files), strict=True
        )
    ]


def _check(found: Sequence[BuggyRepository]) -> None:
    tries: list[tuple[BuggyRepository, dict[str, str]]] = []
    for one in found:
        assert 0 < sum(test.fails for test in one.hidden) < len(one.hidden)
        tries += [(one, {}), (one, one.mended())]
    verdicts = _judged(tries)
    for one, before, after in zip(found, verdicts[::2], verdicts[1::2], strict=True):
        assert before.causes == ("no change", "issue not mended"), one.id
        assert before.score == 0
        assert after.success, (one.id, after)
        assert after.causes == ()


def test_there_are_eight_projects_with_six_kinds_of_bug_each() -> None:
    assert len(projects()) >= 8
    for project in projects().values():
        assert len({bug.kind for bug in project.bugs}) == len(project.bugs) >= 6
        for bug in project.bugs:
            assert project.sources[bug.path].count(bug.good) == 1, (project.name, bug.kind)


def test_the_gold_patch_mends_and_the_untouched_repository_fails() -> None:
    # One bug of each project, of all kinds in turn; `slow` takes all.
    some = [EVERY[6 * at + at % 6] for at in range(len(projects()))]
    found = make_many([(*one, 1) for one in some])
    _check(found)
    assert Raises("ValueError") in [test.expected for one in found for test in one.hidden]


@pytest.mark.slow
def test_all_bugs_can_be_seen_and_mended() -> None:
    for seed in range(4):
        found = make_many([(*one, seed) for one in EVERY])
        for begin in range(0, len(found), 12):
            _check(found[begin : begin + 12])


@pytest.mark.slow
def test_all_right_repositories_pass_their_own_tests() -> None:
    for repository in make_many([(*EVERY[6 * at], 2) for at in range(len(projects()))]):
        environment = SoftwareEnvironment(repository)
        state = environment.start().write(repository.mended())
        _, told = environment.call(state, numbered("run_tests", 0, "{}"))
        assert "OK" in told, (repository.id, told)


def test_equal_seeds_give_equal_bytes_one_by_one_or_together() -> None:
    together = make_many([(*choose(seed), seed) for seed in (4, 3)])
    assert _bytes(together[1:]) == _bytes([generate(3)])
    assert together[0] != together[1]
    assert len({choose(seed)[1] for seed in range(400)}) == len(EVERY)


def test_issues_say_what_and_not_where() -> None:
    for project, bug in EVERY:
        title, _, body = bug.issue.partition("\n\n")
        assert title
        assert len(body) > 40
        assert bug.path not in bug.issue
        assert bug.good not in bug.issue, (project.name, bug.kind)
