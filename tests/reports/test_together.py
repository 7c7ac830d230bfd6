"""What a planner reads of jobs on one fabric."""

from __future__ import annotations

import pytest

from tests.engine.scenarios import moe
from twin.errors import UsageError
from twin.reports.together import Together, together
from twin.scenario import Scenario

NARROW = ("cluster.fabric.nodes_per_leaf=2", "cluster.fabric.oversubscription=4.0")


@pytest.fixture(scope="module")
def jobs() -> list[Scenario]:
    return [moe(4, 2, 1, 16, *NARROW), moe(2, 1, 1, 16, *NARROW)]


@pytest.fixture(scope="module")
def interleaved(jobs: list[Scenario]) -> Together:
    return together(jobs, "interleaved")


def test_what_is_lost_sums_to_the_difference(interleaved: Together) -> None:
    assert (interleaved.leaves, interleaved.shared) == (4, True)
    for one in interleaved.tenants:
        assert sum(one.lost_ns.values()) == one.step_ns - one.alone_ns > 0
        assert one.step_ns in one.steps_ns
        assert "dispatch" in one.slowed_ns
        assert 0 < one.uplinks < 1


def test_words_say_who_loses_how_much_and_where(interleaved: Together) -> None:
    where, first, second = interleaved.sentences()
    assert "4 leaves" in where
    assert "more than alone. Most of it is waiting for" in first
    assert second.startswith(interleaved.tenants[1].name)
    times, slowed = interleaved.tables()
    assert [row[1] for row in times.rows] == ["1 of 4", "1 of 2"]
    assert slowed.rows


def test_apart_nothing_is_lost(jobs: list[Scenario]) -> None:
    found = together(jobs, "apart")
    assert (found.leaves, found.shared) == (3, False)
    for one in found.tenants:
        assert {one.written_ns, one.alone_ns, *one.steps_ns} == {one.step_ns}
    assert "no step changes" in found.sentences()[0]
    assert len(found.tables()) == 1


def test_other_nodes_or_no_room_are_refused(jobs: list[Scenario]) -> None:
    for other, place in (("cluster.node.gpus=4", "nodes"), (NARROW[0][:-1] + "4", "fabrics")):
        with pytest.raises(UsageError) as caught:
            together([jobs[0], moe(4, 1, 1, 16, NARROW[1], other)], "interleaved")
        (problem,) = caught.value.problems
        assert problem.code == "TW173"
        assert f"different {place}" in problem.message
    with pytest.raises(UsageError, match="no room for 3 jobs"):
        together([jobs[0], *jobs], "interleaved")
