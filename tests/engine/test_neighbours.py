"""Jobs beside each other on one fabric: what two steps cost each other where one can work it out by
hand, and what holds for any two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.programs import FREE, UNIT, by_hand, segment
from tests.engine.scenarios import moe
from twin.collectives.traffic import Traffic
from twin.engine import lower, plan, simulate
from twin.engine.link_map import Seats, Use, links
from twin.engine.neighbours import Beside, beside, on_one_fabric
from twin.engine.program import COMPUTE, EXPERT, Program, Step, Template
from twin.network.tenants import nodes_per_leaf, seen
from twin.planning.types import Plan
from twin.scenario import Scenario
from twin.schedules.one_f_one_b import OneForwardOneBackward

pytestmark = pytest.mark.usefixtures("each_player")


def job(before: int, sent: float, after: int, backward: int = 0) -> Program:
    """One rank, one micro-batch: kernels, bytes out of its leaf, kernels; then a backward."""

    def forward(_: int) -> Template:
        flow = Traffic(nic_bytes=sent, far_bytes=sent)
        return (
            Step("forward", COMPUTE, before, ()),
            Step("dispatch", EXPERT, 0, (0,), flow, "expert"),
            Step("forward", COMPUTE, after, (1,)),
        )

    back = segment(backward, "backward")
    return by_hand(OneForwardOneBackward(), (1, 1, 1), forward, lambda _: back, FREE)


def under_one_leaf(*jobs: Program, uplink: float) -> list[Program]:
    """Jobs of one rank each, all under a leaf whose uplinks carry so many bytes per nanosecond."""
    count = len(jobs)
    seats = Seats(range(count), range(count), switch=1, socket=1, node=1, pod=count)
    whole = links(seats, [Use(replace(UNIT, leaf=uplink), narrow=False, messages=None)] * count)
    alone = dict.fromkeys(("nvlink", "nic", "far"), 1.0)
    return [
        replace(one, wiring=replace(whole, ports=whole.ports[n : n + 1], alone=alone))
        for n, one in enumerate(jobs)
    ]


def lengths(found: Beside) -> tuple[int, list[int]]:
    return found.alone.step_ns, [one.step_ns for one in found.together]


def test_two_alike_halve_the_uplink_in_every_step() -> None:
    """By hand: 50 + 100 / 1 + 50 + 100 alone; the exchange takes 100 / 0.5 beside the other's."""
    both = beside(under_one_leaf(job(50, 100, 50, 100), job(50, 100, 50, 100), uplink=1.0))
    assert [lengths(one) for one in both] == [(300, [400] * 3)] * 2


def test_an_exchange_is_slowed_while_the_other_lasts() -> None:
    """By hand: the first sends from 50 on and has 50 bytes left when the other begins, at 100. Both
    get half until 200; then the other's last 50 bytes are alone. Each ends 50 later."""
    first, second = beside(
        under_one_leaf(job(50, 100, 300), job(100, 100, 300), uplink=1.0), steps=1
    )
    assert lengths(first) == (450, [500])
    assert lengths(second) == (500, [550])
    dispatch = [one.typical.breakdown_ns[0]["exposed_expert"] for one in (first, second)]
    assert dispatch == [150, 150]


def test_the_shorter_steps_follow_each_other_while_the_longer_lasts() -> None:
    """By hand: 120 of kernels, 30 of exchange and 1,000 of kernels beside steps of 60 + 40. The
    short job sends at 60 to 100, 160 to 200 and so on: the long one meets it from 120 to 150 not at
    all in its first step."""
    short, long = beside(under_one_leaf(job(60, 40, 0), job(120, 30, 850), uplink=1.0), steps=2)
    assert lengths(long) == (1000, [1000, 1000])
    assert lengths(short) == (100, [100] * 20)


def placed(jobs: list[Scenario]) -> tuple[list[Plan], Scenario]:
    """Plans of jobs that are interleaved over the leaves of the first one's fabric."""
    own = nodes_per_leaf(jobs[0].cluster.fabric.nodes_per_leaf, [one.cluster.nodes for one in jobs])
    return [
        plan(one.model_copy(update={"cluster": seen(one.cluster, nodes)}))
        for one, nodes in zip(jobs, own, strict=True)
    ], jobs[0]


def fabric(nodes: int, oversubscription: float) -> tuple[str, ...]:
    return (
        f"cluster.fabric.nodes_per_leaf={nodes}",
        f"cluster.fabric.oversubscription={oversubscription}",
    )


def pairs(nodes: int, oversubscription: float) -> dict[str, list[Scenario]]:
    wide = fabric(nodes, oversubscription)
    return {
        "experts across nodes, twice": [moe(8, 4, 1, 16, *wide), moe(4, 2, 1, 16, *wide)],
        "deep and flat": [moe(4, 4, 2, 8, *wide), moe(2, 1, 1, 16, *wide)],
    }


@pytest.mark.parametrize("name", pairs(2, 1.0))
def test_at_full_bisection_nothing_changes(name: str) -> None:
    plans, first = placed(pairs(2, 1.0)[name])
    programs = on_one_fabric(plans, first.cluster.fabric)
    for one, found in zip(plans, beside(programs, 1), strict=True):
        assert lengths(found)[0] == simulate(lower(one)).step_ns
        assert set(lengths(found)[1]) == {found.alone.step_ns}


def test_on_leaves_of_their_own_nothing_changes() -> None:
    jobs = pairs(2, 4.0)["experts across nodes, twice"]
    programs = on_one_fabric([plan(one) for one in jobs], jobs[0].cluster.fabric)
    for one, found in zip(jobs, beside(programs, 1), strict=True):
        assert found.alone.step_ns == simulate(lower(plan(one))).step_ns
        assert set(lengths(found)[1]) == {found.alone.step_ns}


@pytest.mark.parametrize("name", pairs(2, 4.0))
def test_no_job_is_faster_beside_another(name: str) -> None:
    plans, first = placed(pairs(2, 4.0)[name])
    programs = on_one_fabric(plans, first.cluster.fabric)
    for found in beside(programs, 2):
        assert min(lengths(found)[1]) > found.alone.step_ns


def test_few_roles_give_what_all_ranks_give() -> None:
    """Leaves that hold other ranks of the neighbour part the roles of a job."""
    wide = (*fabric(3, 8.0), "parallel.zero=2")
    jobs = [moe(4, 4, 1, 4, *wide), moe(4, 2, 2, 8, *wide)]
    plans, first = placed(jobs)
    few, every = (on_one_fabric(plans, first.cluster.fabric, how) for how in ("folded", "all"))
    assert len(few[0].roles) < len(every[0].roles)
    for one, other in zip(beside(few, 1), beside(every, 1), strict=True):
        assert lengths(one) == lengths(other)


def test_nodes_of_jobs_under_a_leaf() -> None:
    assert nodes_per_leaf(8, [32, 32]) == (4, 4)
    assert nodes_per_leaf(8, [24, 8]) == (6, 2)
    assert nodes_per_leaf(8, [5, 2]) == (5, 2)  # one leaf holds both
    assert nodes_per_leaf(4, [5, 5]) == (2, 2)
    with pytest.raises(ValueError, match="no room for 2 jobs"):
        nodes_per_leaf(1, [1, 1])
