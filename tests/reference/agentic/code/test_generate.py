"""Tasks: what seeds give, that right solutions pass and wrong ones fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reference.agentic.code.environment import group_of, verdict_of
from reference.agentic.code.generate import generate, make, mutants
from reference.agentic.code.hidden import run_checks
from reference.agentic.code.problems import problem_kinds


def _mutation(seed: int) -> tuple[int, list[str]]:
    """How many wrong solutions of this seed's tasks there are, and which pass; right ones must."""
    tasks = [make(kind, seed) for kind in problem_kinds().values()]
    texts = [
        (task, text)
        for task in tasks
        for text in (task.solution, *mutants(problem_kinds()[task.entry], seed))
    ]
    answers = run_checks([group_of(*one) for one in texts])
    verdicts = [verdict_of(task, got) for (task, _), got in zip(texts, answers, strict=True)]
    passed = {at for at, one in enumerate(verdicts) if one.success}
    for at, (task, text) in enumerate(texts):
        assert text != task.solution or at in passed, (task.id, verdicts[at])
    wrong = [at for at, (task, text) in enumerate(texts) if text != task.solution]
    return len(wrong), [texts[at][0].id for at in wrong if at in passed]


def test_right_solutions_pass_and_every_mutant_fails() -> None:
    count, survivors = _mutation(0)
    assert count >= 100
    assert survivors == []


@pytest.mark.slow
def test_mutation_score_over_many_seeds() -> None:
    found = [_mutation(seed) for seed in range(1, 21)]
    count, survived = sum(one for one, _ in found), [name for _, some in found for name in some]
    print(f"{count} mutants, {len(survived)} passed: {survived}")
    assert len(survived) <= 0.01 * count


def test_there_are_thirty_kinds_of_all_difficulties() -> None:
    known = problem_kinds()
    assert len(known) >= 30
    assert {one.difficulty for one in known.values()} == {1, 2, 3, 4, 5}
    assert all(len(one.mutants) >= 2 and one.tags for one in known.values())


def test_a_seed_gives_the_same_bytes_in_another_process() -> None:
    text = (
        "from reference.agentic.code.generate import generate; "
        "print([generate(seed) for seed in range(12)])"
    )
    words = [sys.executable, "-c", text]
    root = Path(__file__).parents[4]
    done = subprocess.run(words, check=True, capture_output=True, cwd=root, text=True)
    assert done.stdout.strip() == str([generate(seed) for seed in range(12)])
    assert generate(1) != generate(2)


def test_hidden_tests_hold_no_example_and_both_truth_values() -> None:
    for kind in problem_kinds().values():
        for seed in range(2):
            task = make(kind, seed)
            assert len(task.examples) == 3
            shown = [one.arguments for one in task.examples]
            assert not [one for one in task.hidden if one.arguments in shown]
            values = [repr(one.expected) for one in task.hidden]
            assert len(set(values)) >= 2, task.id
            assert "$" not in task.statement + task.solution
