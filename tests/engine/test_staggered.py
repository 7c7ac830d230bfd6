"""Steps whose stages end as staggered as they begin: ZB-H2's, without a gradient norm to wait for
(Qi et al. 2023, arXiv:2401.10241, section 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.engine.programs import by_hand, segment
from tests.engine.scenarios import dense
from twin.engine import lower, plan, simulate
from twin.engine.program import DATA, Program, StageMessage, Step
from twin.schedules.base import Schedule
from twin.schedules.zb_h1 import ZeroBubbleH1
from twin.schedules.zb_h2 import ZeroBubbleH2

pytestmark = pytest.mark.usefixtures("each_player")

SHAPE = (8, 1, 24)
UNTIED = "model.tied_embeddings=false"
"""A tied embedding is added up over the first stage and the last, which wait for each other."""
TOGETHER = ZeroBubbleH2(post_validation=False)


def equal(schedule: Schedule, delay: int = 0, closing: int = 0) -> Program:
    """F = I = W = 100 ns; `closing` ns of the optimizer behind an agreement of those of `world`."""
    program = by_hand(
        schedule,
        SHAPE,
        lambda _: segment(100),
        lambda _: segment(100, "backward_input"),
        StageMessage(0.0, "nic", delay),
        lambda _: segment(100, "backward_weight"),
    )
    norm = Step("gradient_norm", DATA, 0, (), None, "world")
    finish = (norm, *(replace(step, after=(0,)) for step in segment(closing, "optimizer")))
    own = [replace(role, groups={"world": role.stage}) for role in program.roles]
    return replace(
        program,
        roles=tuple(own) if schedule.staggered else program.roles,
        finish=(finish,) * SHAPE[0],
        ready_after=((None, None),) * SHAPE[0],
    )


def test_a_step_of_equal_passes_has_no_bubble_and_one_that_ends_together_has() -> None:
    trace = simulate(equal(ZeroBubbleH2(), closing=50))
    assert trace.step_ns == 24 * 300 + 50
    assert {row["bubble"] for row in trace.breakdown_ns} == {0}
    together = simulate(equal(TOGETHER, closing=50))
    assert together.step_ns == 24 * 300 + 7 * 100 + 50
    assert {row["bubble"] for row in together.breakdown_ns} == {7 * 100}
    assert simulate(equal(ZeroBubbleH1(), closing=50)).step_ns == together.step_ns


def test_stages_begin_one_forward_and_one_message_apart() -> None:
    trace = simulate(equal(ZeroBubbleH2(), delay=9))
    starts = [trace.spans.start[trace.spans.role == role].min() for role in range(SHAPE[0])]
    assert starts == [109 * role for role in range(SHAPE[0])]
    assert all(sum(row.values()) == trace.step_ns for row in trace.breakdown_ns)


def test_the_last_steps_end_is_no_part_of_the_critical_path() -> None:
    program = equal(ZeroBubbleH2(), delay=9)
    slow = {("F", 5): segment(170), ("W", 5): segment(190, "backward_weight")}
    trace = simulate(replace(program, passes=program.passes | slow), extrapolate=False)
    rows = list(trace.critical)
    starts, ends = trace.spans.start[rows], trace.spans.end[rows]
    assert (starts[1:] == ends[:-1]).all()
    assert ends[-1] - starts[0] == trace.step_ns == 24 * (170 + 100 + 190)
    assert set(trace.spans.role[rows]) == {5}


def test_a_long_staggered_step_is_extrapolated_as_it_is_simulate() -> None:
    program = replace(equal(ZeroBubbleH2(weights_late=3), delay=9, closing=50), microbatches=200)
    short, whole = (simulate(program, extrapolate=yes) for yes in (True, False))
    assert short.repeats > 1
    assert short.step_ns == whole.step_ns
    assert short.breakdown_ns == whole.breakdown_ns


@pytest.mark.parametrize("ranks", ["folded", "all"])
def test_ranks_of_a_stage_agree_on_the_norm_and_wait_for_no_other_stage(ranks: Any) -> None:
    scenario = dense(2, 4, 1, 2, "parallel.schedule=zb_h2", UNTIED)
    program = lower(plan(scenario), ranks)
    trace = simulate(program, extrapolate=False)
    spans, begun = trace.spans, dict[int, set[int]]()
    # The last of them: what a rank adds to the norm is the optimizer's, too.
    updates = spans.name == trace.names.index("optimizer")
    for number, role in enumerate(program.roles):
        first = spans.start[updates & (spans.role == number)].max()
        begun.setdefault(role.stage, set()).add(int(first))
    assert [len(times) for times in begun.values()] == [1] * 4
    assert len(set[int]().union(*begun.values())) == 4


def test_waiting_for_all_stages_costs_what_the_stagger_hid() -> None:
    scenarios = [
        dense(2, 4, 1, 2, f"parallel.schedule={{kind: zb_h2, post_validation: {value}}}", UNTIED)
        for value in ("true", "false")
    ]
    fast, slow = (simulate(lower(plan(scenario))).step_ns for scenario in scenarios)
    assert fast < slow
