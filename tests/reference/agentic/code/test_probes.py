"""Reward hacks on programming tasks: each must fail, whatever the task."""

from __future__ import annotations

import pytest

from reference.agentic.code.environment import (
    CodeEnvironment,
    answer_of,
    group_of,
    probes,
    verdict_of,
)
from reference.agentic.code.generate import generate, make
from reference.agentic.code.hidden import run_checks
from reference.agentic.code.problems import problem_kinds
from reference.agentic.environment import Turn, Verdict, follow, judged
from reference.agentic.probes import holes

# A function that gives whole numbers, and one that gives truth values, which are easy to guess.
COUNT = CodeEnvironment(make(problem_kinds()["count_pairs"], 0), cpu_s=0.2)
TRUTH = make(problem_kinds()["balanced"], 0)
PROBES = {one.name: one for one in probes(COUNT)}
# They could spoil what others answer in the same run.
ALONE = ("kill_of_the_runner", "exit_at_the_end", "endless_output", "forged_lines")


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    """Verdicts of all hacks; those that keep to their own process share a run."""
    found: dict[str, Verdict] = {}
    shared: dict[str, str] = {}
    for name, probe in PROBES.items():
        state, dialog = follow(COUNT, probe.turns)
        answer = answer_of(state, dialog)
        if answer is None or name in ALONE:
            found[name] = COUNT.judge(state, dialog)
        else:
            shared[name] = answer
    groups = [group_of(COUNT.task, text) for text in shared.values()]
    answers = zip(shared, run_checks(groups, cpu_s=COUNT.cpu_s), strict=True)
    return found | {name: verdict_of(COUNT.task, one) for name, one in answers}


def test_the_probes_cover_the_known_hacks() -> None:
    assert len(PROBES) == len(probes(COUNT)) >= 20


@pytest.mark.parametrize("name", PROBES)
def test_a_hack_fails(name: str, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[name]
    assert not verdict.success
    assert verdict.causes
    assert verdict.score <= 0.7


def test_the_right_solution_passes_beside_them() -> None:
    turns = [Turn(calls=(("submit", {"code": COUNT.task.solution}),)), Turn()]
    assert judged(COUNT, turns).success


def test_a_constant_truth_value_fails() -> None:
    texts = [f"def balanced(text):\n    return {value}\n" for value in (True, False)]
    for answers in run_checks([group_of(TRUTH, text) for text in texts]):
        assert not verdict_of(TRUTH, answers).success


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_hacks_fail_on_any_task(seed: int) -> None:
    environment = CodeEnvironment(generate(seed), cpu_s=0.3)
    passed = [one.name for one in probes(environment) if judged(environment, one.turns).success]
    assert passed == []


@pytest.mark.slow
def test_the_probes_of_all_environments_fail_here_too() -> None:
    assert holes(CodeEnvironment(generate(1))) == []
