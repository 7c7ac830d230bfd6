"""Synthetic tasks as cases: a row makes the same environment each time."""

import pytest

from reference.config import TaskChoice
from reference.evaluate.task import open_task
from reference.evaluate.tool_use import tool_use
from reference.evaluate.worlds.synthetic import errand, function
from reference.generate.rules import RuleGenerator
from twin.errors import TwinError


@pytest.mark.slow  # evolving the tools takes seconds
def test_errands_follow_from_their_rows_and_rules_can_play_them():
    rows = [case.row for case in open_task(TaskChoice(name="errands"), limit=4).cases]
    first, second = ([errand(row).opening for row in rows] for _ in range(2))
    assert first == second
    assert len({repr(one.messages) for one in first}) == 4
    found = tool_use([errand(row) for row in rows], RuleGenerator())
    assert found.validity is not None
    assert found.validity.value == 1
    with pytest.raises(TwinError, match="TW585"):
        errand({**rows[0], "number": 10**6})


def test_functions_follow_from_their_seeds_and_no_answer_solves_none():
    one = function({"seed": 5})
    assert one.opening == function({"seed": 5}).opening != function({"seed": 6}).opening
    assert not one.judge(one.start(), one.opening).success
