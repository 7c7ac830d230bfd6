"""Expert ranks with rows of their own: what one can work out by hand, and what holds beside the
fullest rank that stands for all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.engine.programs import apart, by_hand, segment
from tests.engine.scenarios import moe
from twin.collectives.traffic import Traffic
from twin.engine import lower, plan, simulate
from twin.engine.expert_rows import ExpertRows, expert_rows
from twin.engine.program import COMPUTE, EXPERT, IMBALANCE, Program, Step
from twin.engine.trace import Trace
from twin.schedules.one_f_one_b import OneForwardOneBackward

pytestmark = pytest.mark.usefixtures("each_player")

ZIPF = "train.routing={kind: zipf, s: 0.4}"
LOGGED = f"train.routing={{kind: histogram, loads: {[20, *[11] * 15]}}}"
PLAIN = "parallel.dispatcher=alltoall"


def two_ranks(excess: tuple[float, float], sent: float) -> Program:
    """One micro-batch on two expert ranks: experts of 100 on the mean rank and 140 on the fullest,
    then `sent` bytes of the fullest, which are 1.6 times the mean rank's; a backward of 10."""
    rows = ((0, 40.0),)
    template = (
        Step("forward", COMPUTE, 100, (), rows=rows),
        Step(IMBALANCE, COMPUTE, 40, (0,), rows=rows),
        Step("combine", EXPERT, 0, (1,), Traffic(nic_bytes=sent), "expert", rows=((0, 0.0),)),
        Step("forward", COMPUTE, 0, (2,)),
    )
    plain = by_hand(
        OneForwardOneBackward(), (1, 1, 1), lambda _: template, lambda _: segment(10, "backward")
    )
    role = plain.roles[0]
    roles = tuple(
        replace(role, peers=(n,), groups={"world": 0, "expert": 0}, expert=n) for n in range(2)
    )
    own = ExpertRows({(0, 0): np.array(excess)}, {(0, 0): (1.6, 1.6)}, 1)
    return replace(plain, roles=roles, wiring=apart(2), expert_rows=own)


def test_who_has_few_rows_waits_for_the_fullest() -> None:
    """By hand: 60 and 140 of experts, then both wait for the fullest's 80 bytes."""
    found = simulate(two_ranks((-1.0, 1.0), 80.0))
    assert found.step_ns == 140 + 80 + 10
    few, fullest = found.breakdown_ns
    assert (few["compute"], few["imbalance"], few["exposed_expert"]) == (70, 0, 80)
    assert few["bubble"] == 80
    assert (fullest["compute"], fullest["imbalance"], fullest["bubble"]) == (110, 40, 0)


def test_halfway_between_the_mean_rank_and_the_fullest() -> None:
    """By hand: 120 on both, then 80 x (1 + 0.5 x 0.6) / 1.6 = 65 bytes."""
    found = simulate(two_ranks((0.5, 0.5), 80.0))
    assert found.step_ns == 120 + 65 + 10
    assert found.breakdown_ns[0]["imbalance"] == 20


def test_nics_carry_the_mean_of_their_node_where_copies_are_merged() -> None:
    """By hand: ranks of two nodes of two; the first node's mean excess is 0.25."""
    own = ExpertRows({(0, 0): np.array([1.0, -0.5, 0.0, -0.5])}, {(0, 0): (1.5, 1.2)}, 2)
    flow = Traffic(nvlink_bytes=15.0, nic_bytes=12.0, far_bytes=6.0)
    sent = [own.sent(flow, (0, 0), rank) for rank in range(4)]
    assert [one.nvlink_bytes for one in sent] == pytest.approx([15, 10, 10, 10])
    assert [one.nic_bytes for one in sent] == pytest.approx([10.5, 10.5, 10, 10])
    assert [one.far_bytes for one in sent] == pytest.approx([5.25, 5.25, 5, 5])


def apart_and_fullest(*words: str) -> tuple[Trace, Trace]:
    nodes, stages, virtual, expert = 4, 2, 1, 16
    resolved = plan(moe(nodes, stages, virtual, expert, *words))
    return simulate(lower(resolved, "all")), simulate(lower(resolved))


@pytest.mark.parametrize("words", [(ZIPF,), (ZIPF, PLAIN), (LOGGED,), (LOGGED, PLAIN)])
def test_where_ranks_meet_after_all_experts_the_fullest_decides(words: tuple[str, ...]) -> None:
    every, fullest = apart_and_fullest(*words)
    assert every.step_ns == fullest.step_ns
    spent = [row["compute"] + row["imbalance"] for row in every.breakdown_ns]
    assert max(spent) <= sum(
        max(r[c] for r in fullest.breakdown_ns) for c in ("compute", "imbalance")
    )
    assert min(spent) < 0.99 * max(spent)


def test_weights_apart_from_inputs_cost_what_a_rank_has_over_all_layers() -> None:
    every, fullest = apart_and_fullest(ZIPF, "parallel.schedule=zb_h1")
    assert 0.9 * fullest.step_ns < every.step_ns < fullest.step_ns


def test_rows_are_dealt_anew_in_each_layer_by_zipf_and_add_up_to_the_mean() -> None:
    rows = expert_rows(plan(moe(4, 2, 1, 16, ZIPF)))
    assert rows is not None
    first, second, *_ = rows.excess.values()
    assert sorted(first) == sorted(second)
    assert first.tolist() != second.tolist()
    for excess in rows.excess.values():
        assert excess.max() == pytest.approx(1.0)
        assert excess.sum() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("routing", ["balanced", "{kind: random}"])
def test_alike_or_by_chance_nobody_has_rows_of_their_own(routing: str) -> None:
    assert expert_rows(plan(moe(4, 2, 1, 16, f"train.routing={routing}"))) is None
