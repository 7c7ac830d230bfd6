"""What GPUs that differ cost, and who waits: the report, its sentence, its table and its map."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.engine.scenarios import moe
from tests.engine.test_uneven import uneven
from twin.engine import lower, plan, simulate
from twin.explore.search.space import layout_of
from twin.figures.uneven import waiting_map
from twin.reports import Report, report
from twin.scenario import Scenario
from twin.spec.cluster import DegradedSpec

EVEN = moe(8, 4, 2, 16)
SLOW = (DegradedSpec(gpus=(17,), compute=0.8),)


@cache
def answered() -> Report:
    planned = plan(uneven(EVEN, *SLOW))
    return report(planned, simulate(lower(planned)))


def test_the_cost_is_the_step_less_that_of_equal_gpus() -> None:
    found, even = answered(), simulate(lower(plan(EVEN)))
    assert found.uneven is not None
    assert found.uneven.even_ns == even.step_ns < found.step_ns
    assert "With one GPU that does less the step takes" in found.uneven.words
    assert report(plan(EVEN), even).uneven is None
    assert json.loads(json.dumps(found.to_json()))["uneven"]["gpus"] == [17]


def test_kinds_of_ranks_add_up_to_the_mean_rank() -> None:
    found = answered()
    assert found.uneven is not None
    kinds = found.uneven.kinds
    assert sum(one.ranks for one in kinds) == len(found.uneven.longer_ns) == EVEN.cluster.gpus
    bubble = sum(one.ranks * one.bubble_ns for one in kinds) / EVEN.cluster.gpus
    assert bubble == pytest.approx(found.breakdown_ns["bubble"], abs=len(kinds))
    for one in kinds:
        assert one.busy_ns + one.exposed_ns + one.bubble_ns == found.step_ns


def test_the_slow_gpu_waits_less_and_its_group_more() -> None:
    found = answered().uneven
    assert found is not None
    slow, group = found.kinds[0], found.kinds[1]
    assert slow.ranks == 1
    assert group.ranks == EVEN.parallel.expert - 1
    assert slow.longer_ns < 0 < group.longer_ns
    assert found.longer_ns[17] == slow.longer_ns


def test_the_same_whether_ranks_are_folded_or_not() -> None:
    planned = plan(uneven(EVEN, *SLOW))
    every = report(planned, simulate(lower(planned, "all")))
    folded = answered()
    assert every.breakdown_ns == folded.breakdown_ns
    assert every.uneven == folded.uneven


def test_the_map_has_every_gpu_and_frames_those_that_do_less() -> None:
    found = answered().uneven
    assert found is not None
    picture = waiting_map(found, EVEN.cluster.node.gpus, "plan", "light")
    cells, framed = json.loads(str(picture.figure.to_json()))["data"]
    drawn = [one for row in cells["customdata"] for one in row if one]
    assert len(drawn) == EVEN.cluster.gpus
    assert (framed["x"], framed["y"]) == ([2], [1])  # GPU 17: the second of node 2
    assert "GPUs that do less" in picture.title


def test_other_sizes_of_a_search_have_equal_gpus() -> None:
    found: Scenario = layout_of(EVEN).applied(uneven(EVEN, *SLOW))
    assert not found.cluster.uneven
    assert layout_of(EVEN).overrides(uneven(EVEN, *SLOW))["cluster.degraded"] == []


def test_expert_ranks_with_few_rows_wait_for_the_others() -> None:
    logged = f"train.routing={{kind: histogram, loads: {[20, *[11] * 15]}}}"
    planned = plan(moe(4, 2, 1, 16, logged))
    found = report(planned, simulate(lower(planned, "all"))).uneven
    assert found is not None
    more, fewer = found.kinds
    assert (more.ranks, fewer.ranks) == (2, 30)
    assert fewer.longer_ns > more.longer_ns
    assert "With expert ranks that differ the step takes" in found.words
    assert found.words.endswith("of a balanced router.")
    assert min(found.longer_ns[1:16]) > found.longer_ns[0]
    shown = waiting_map(found, 8, "logged", "light")
    assert "than with a balanced router" in shown.caption
    assert report(planned, simulate(lower(planned))).uneven is None
