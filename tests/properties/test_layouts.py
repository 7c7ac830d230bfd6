"""Laws of the whole chain (load, plan, lower, simulate, report) over random small layouts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings

from tests.properties.layouts import Layout, layouts, spoiled
from twin.engine import lower, plan, simulate
from twin.engine.breakdown import beginnings
from twin.engine.events import play
from twin.engine.steady import LARGEST_ERROR_NS
from twin.engine.unroll import unroll
from twin.errors import Problem, ScenarioError
from twin.planning.footprint import footprints
from twin.planning.types import Plan
from twin.planning.walk import walk
from twin.reports import Report, report
from twin.scenario import Scenario


def planned_or_wrong(scenario: Scenario) -> Plan | tuple[Problem, ...]:
    """The plan of a scenario, or what is wrong with it."""
    try:
        return plan(scenario)
    except ScenarioError as error:
        return error.problems


def possible(layout: Layout) -> Plan:
    """The plan of a layout that `layouts` drew; where groups straddle nodes, another is drawn."""
    planned = planned_or_wrong(layout.scenario())
    if isinstance(planned, tuple):
        assert {problem.code for problem in planned} == {"TW101"}
        reject()
    return planned


def reported(planned: Plan) -> Report:
    return report(planned, simulate(lower(planned)))


@settings(max_examples=25)
@given(spoiled())
def test_a_layout_runs_or_says_where_it_is_wrong_and_how_to_mend_it(layout: Layout) -> None:
    planned = planned_or_wrong(layout.loaded())
    if isinstance(planned, Plan):
        assert reported(planned).step_ns > 0
        return
    for problem in planned:
        assert problem.code.startswith("TW1")
        assert problem.message
        assert problem.hint
        assert problem.origin is not None
        assert problem.origin.line > 0


@settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])
@given(layouts(most_stages=4, rounds=(12, 24)))
def test_what_is_extrapolated_is_what_playing_it_all_gives(layout: Layout) -> None:
    program = lower(possible(layout))
    short = simulate(program)
    assume(short.played_microbatches < short.microbatches)
    graph = unroll(program, program.microbatches)
    whole = play(graph, program)
    begins = beginnings(graph, whole, program)
    longest = (whole.end - begins[graph.role]).max()
    largest_error = LARGEST_ERROR_NS if whole.shared else 0
    assert abs(short.step_ns - longest) <= largest_error


@settings(max_examples=30)
@given(layouts())
def test_more_microbatches_never_need_less_memory(layout: Layout) -> None:
    few = possible(layout)
    sequences = few.scenario.train.global_batch_sequences
    another_round = few.mesh.data * few.scenario.parallel.micro_batch * few.mesh.pipeline
    split = list(few.layers_per_part)
    more = plan(layout.but(batch=sequences + another_round, layers=split).scenario())
    for before, after in zip(few.memory.stages, more.memory.stages, strict=True):
        assert after.peak_bytes >= before.peak_bytes
        assert after.in_flight >= before.in_flight


@settings(max_examples=40)
@given(layouts(rounds=(1, 8)))
def test_no_moment_of_the_whole_step_is_fuller_than_the_peak(layout: Layout) -> None:
    planned = possible(layout)
    needs = footprints(planned.chunks)
    chunks_per_stage = len(planned.chunks) // planned.mesh.pipeline
    order = planned.scenario.parallel.schedule.order(
        planned.mesh.pipeline, chunks_per_stage, planned.microbatches
    )
    for actions, stage in zip(order, planned.memory.stages, strict=True):
        peak = walk(actions, needs).peak()
        held = sum(stage.categories[name] for name in ("activations", "logits", "working_set"))
        assert held == pytest.approx(peak.held.total)
        assert stage.in_flight == peak.in_flight
