"""Rows of other collections as tasks; the rows here are our own, in their fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reference.agentic.code.environment import group_of, verdict_of
from reference.agentic.code.generate import generate, task_json
from reference.agentic.code.hidden import run_checks
from reference.agentic.code.imported import read_tasks
from twin.errors import UsageError

HUMAN_EVAL = {
    "task_id": "Ours/0",
    "entry_point": "mean",
    "prompt": 'def mean(numbers):\n    """The mean; 0 of nothing."""\n',
    "canonical_solution": "    return sum(numbers) / len(numbers) if numbers else 0\n",
    "test": (
        "def check(candidate):\n"
        "    assert candidate([1, 3]) == 2.0\n"
        "    assert abs(candidate([0.1, 0.2]) - 0.15) < 1e-6\n"
        "    assert candidate([]) == 0, 'of nothing'\n"
        "    assert candidate([0]) == 0\n"
        "    for n in range(9):\n"
        "        assert candidate([n]) == n\n"
    ),
}
MBPP = {
    "task_id": 1,
    "text": "Write a function to swap a pair.",
    "code": "def swap(pair):\n    return (pair[1], pair[0])",
    "test_list": ["assert swap((1, 2)) == (2, 1)", "assert swap(('a', None)) == (None, 'a')"],
}
TRUTH = {
    "task_id": 3,
    "text": "Write a function to tell even numbers.",
    "code": "def even(number):\n    return number % 2 == 0",
    "test_list": ["assert even(2)", "assert not even(3)", "assert even(4) == True"],
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    bad = [{"task_id": 2, "text": "x", "test_list": ["assert f(g(1))"]}, {"id": "none"}, [1]]
    own = task_json(generate(3))
    texts = [json.dumps(one) for one in (HUMAN_EVAL, MBPP, TRUTH, own, *bad)]
    (tmp_path / "tasks.jsonl").write_text("\n".join([*texts, "{", "", texts[1]]))
    return tmp_path / "tasks.jsonl"


def test_rows_become_tasks_and_what_does_not_fit_is_named(rows: Path) -> None:
    found = read_tasks(rows)
    own = generate(3).id
    assert [one.id for one in found.tasks] == ["Ours/0", "mbpp-1", "mbpp-3", own, "mbpp-1"]
    assert [line for line, _ in found.refused] == [5, 6, 7, 8]
    assert "none of its assertions" in found.refused[0][1]
    assert found.left_out == 1
    mean, swap = found.tasks[:2]
    assert [one.arguments for one in mean.hidden] == [([1, 3],), ([0.1, 0.2],), ([],), ([0],)]
    assert mean.tolerance == 1e-6
    assert (len(swap.examples), len(swap.hidden)) == (1, 1)


def test_their_own_solutions_pass_and_others_do_not(rows: Path) -> None:
    tasks = read_tasks(rows).tasks[:3]
    texts = [*(one.solution for one in tasks), "def swap(pair):\n    return pair\n"]
    whose = [*tasks, tasks[1]]
    groups = [group_of(*one) for one in zip(whose, texts, strict=True)]
    found = [verdict_of(*one).success for one in zip(whose, run_checks(groups), strict=True)]
    assert found == [True, True, True, False]


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TW570"):
        read_tasks(tmp_path / "no.jsonl")
