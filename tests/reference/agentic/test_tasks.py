"""Tasks are solvable, as deep as they say, and cannot be answered from what the user says."""

from __future__ import annotations

import json
from collections import Counter

from reference.agentic.operations.base import FromResult
from reference.agentic.task_writer import arguments_of
from reference.agentic.world import ERROR
from reference.dialog import Call
from tests.reference.agentic.worlds import environments, scene


def test_the_chain_of_every_task_reaches_its_end_state_in_a_fresh_world() -> None:
    for environment in environments():
        task, state, results = environment.task, environment.start(), []
        for step in task.steps:
            given = arguments_of(step, results)
            assert given is not None
            state, told = environment.call(state, Call("", step.tool, json.dumps(given)))
            assert not told.startswith(ERROR)
            results.append(json.loads(told))
        assert state.tables == task.expected


def test_there_are_tasks_of_at_least_four_depths() -> None:
    depths = Counter(one.task.depth for one in environments())
    assert set(depths) >= {1, 2, 3, 4}


def test_depth_counts_calls_that_each_need_an_earlier_result() -> None:
    for environment in environments():
        task, deep = environment.task, list[int]()
        for step in task.steps:
            needs = [one.step for one in step.arguments.values() if isinstance(one, FromResult)]
            assert all(at < len(deep) for at in needs)
            deep.append(1 + max((deep[at] for at in needs), default=0))
        assert max(deep) == task.depth


def test_no_fact_stands_in_what_the_user_says() -> None:
    told = [one for one in environments() if one.task.rubric.facts]
    assert len(told) > 10
    for environment in told:
        said = " ".join(one.words for one in environment.task.goals).split()
        assert not set(environment.task.rubric.facts) & {one.strip(".,?") for one in said}


def test_the_same_number_gives_the_same_task_another_one_another() -> None:
    assert scene().environment(3) == scene().environment(3)
    tasks = [one.task for one in environments()]
    assert len({one.goals[0].words for one in tasks}) > 0.9 * len(tasks)


def test_what_is_withheld_is_not_said_at_first_and_styles_differ() -> None:
    held = [one.task for one in environments() if one.task.withheld]
    assert held
    for task in held:
        for slot in task.withheld:
            assert f"to {task.stated[slot].text}" not in task.goals[0].words
    assert len({one.task.persona.style for one in environments()}) >= 4


def test_every_task_has_a_rubric_with_a_checkpoint_per_step() -> None:
    for environment in environments():
        rubric = environment.task.rubric
        assert len(rubric.tools) == len(rubric.checkpoints) == len(environment.task.steps)
        assert rubric.most_calls > len(rubric.tools)
