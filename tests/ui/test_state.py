"""Plans keep their scenario's name, and copies never take each other's."""

import pytest

from twin.ui.state import next_copy, scenario_of, shown_name


@pytest.mark.parametrize("plan", ["a-b", "a-b (copy)", "a-b (copy 12)"])
def test_a_copy_knows_its_scenario(plan):
    assert scenario_of(plan) == "a-b"


def test_copies_are_numbered_and_never_clash():
    taken = []
    for _ in range(3):
        taken.append(next_copy(taken[-1] if taken else "a", taken))
    assert taken == ["a (copy)", "a (copy 2)", "a (copy 3)"]


def test_edited_plans_say_so():
    assert shown_name("a", ()) == "a"
    assert shown_name("a", ("x=1",)) == "a, edited"
