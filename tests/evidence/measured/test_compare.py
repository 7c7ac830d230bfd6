"""A run at a glance, its actions, and a prediction beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.programs import by_hand, segment, with_exchange
from tests.evidence.measured.timelines import MS, pipeline, run_of
from tests.figures.made import make_trace
from twin.engine import simulate
from twin.engine.program import StageMessage
from twin.engine.trace import Trace
from twin.errors import UsageError
from twin.evidence.measured.compare import (
    StepComparison,
    compare_actions,
    joined_trace,
    sentence,
    unfolded,
)
from twin.evidence.measured.run_folder import read
from twin.evidence.measured.step import trace
from twin.evidence.measured.summary import simulated_actions, summary
from twin.reports.breakdown import mean
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.schedules.zb_h1 import ZeroBubbleH1


def median(run: Path, name: str, chunk: int = -1) -> float:
    """The median of an action, in ms."""
    found = summary(read(run)).actions
    (one,) = (one for one in found if (one.name, one.chunk) == (name, chunk))
    return one.median / MS


def test_the_median_step_stands_for_a_run_and_the_first_steps_are_warm_up(piped: Path) -> None:
    found = summary(read(piped))
    assert found.warm_up == (1,)
    assert found.counted == (2, 3, 4, 5)
    assert found.step == 3
    assert found.least < found.low < found.median < found.high < found.most
    assert found.least == read(piped).step_ns(2)


def test_a_step_that_is_asked_for_is_shown_and_one_that_is_not_there_refused(piped: Path) -> None:
    assert summary(read(piped), 1).step == 1
    with pytest.raises(UsageError) as caught:
        summary(read(piped), 9)
    assert caught.value.problems[0].code == "TW334"
    assert "1 to 5" in str(caught.value)


def test_a_single_step_is_no_warm_up(tmp_path: Path) -> None:
    found = summary(read(pipeline(tmp_path, steps=1)))
    assert (found.step, found.warm_up, found.counted) == (1, (), (1,))


def test_actions_are_timed_without_what_they_wait_for(tmp_path: Path) -> None:
    def rows(ready: float) -> list[tuple[object, ...]]:
        return [
            ("compute", "F", 0, 0, 0, 10),
            ("expert", "dispatch", 0, 0, ready, 20),
            ("compute", "F", 0, 0, 20, 25),
            ("data", "momentum_gather", -1, -1, 25, 27),
            ("data", "momentum_gather", -1, -1, 27, 30),
        ]

    run = run_of(
        tmp_path, [rows(10), rows(16)], [(0, 30)] * 2, parallel={"pipeline": 1, "expert": 2}
    )
    assert median(run, "F", 0) == 15
    assert median(run, "dispatch", 0) == 4
    assert median(run, "momentum_gather") == 5


def test_a_message_counts_where_it_is_sent(piped: Path) -> None:
    found = summary(read(piped)).actions
    messages = [one for one in found if one.name == "message"]
    assert [(one.chunk, one.count) for one in messages] == [(0, 16), (1, 16)]


def test_passes_of_a_simulated_step_have_the_trainers_names() -> None:
    halves = {"forward": with_exchange(90, 30), "backward": segment(60, "backward_input")}
    program = by_hand(
        ZeroBubbleH1(kind="zb_h1"),
        (2, 1, 4),
        lambda _: halves["forward"],
        lambda _: halves["backward"],
        StageMessage(7.0, "nvlink", 3),
        lambda _: segment(40, "backward_weight"),
    )
    found = {(one.name, one.chunk): one.median for one in simulated_actions(simulate(program))}
    assert found["F", 0] == 90
    assert found["I", 1] == 60
    assert found["W", 0] == 40
    assert found["message", 0] == 10
    assert found["dispatch", 1] == 30


def test_what_is_computed_again_belongs_to_the_pass_that_needs_it() -> None:
    rows = [(0, "compute", "recompute", 0, 0, 0, 5), (0, "compute", "backward", 0, 0, 5, 20)]
    (one,) = simulated_actions(make_trace(rows, 1))
    assert (one.name, one.median / MS) == ("B", 20)


def made(took: int, said: int) -> StepComparison:
    """A comparison of two steps of so many ns."""
    row = {"compute": took}
    return StepComparison(took, said, row, {"compute": said}, (), ())


def test_errors_are_of_what_was_measured(piped: Path) -> None:
    mine = summary(read(piped)).actions
    other = [replace(one, median=2 * one.median) for one in mine if one.name in ("F", "W")]
    found = {one.name: one for one in compare_actions(mine, other)}
    assert found["F"].error == pytest.approx(1.0)
    assert found["B"].error is None
    assert found["F"].measured_seconds == pytest.approx(10.035e-3)
    assert [one.chunk for one in found["F"].chunks] == [0, 1]
    assert found["F"].weight == pytest.approx(32 * 10.035e-3)


def test_the_answer_is_one_sentence(piped: Path) -> None:
    run = read(piped)
    found = summary(run)
    said = sentence(found, trace(run, found.step), None)
    assert said.startswith("Step 3 took 161 ms; half of 4 steps took 161 ms to 162 ms")
    shown = trace(run, 3)
    for predicted, words in ((2.0, "100 % too long"), (0.5, "50.0 % too short"), (1.0, "as long")):
        compared = made(shown.step_ns, round(predicted * shown.step_ns))
        assert words in sentence(found, shown, compared)


def test_both_steps_stand_stage_by_stage_on_one_axis(piped: Path) -> None:
    run = read(piped)
    mine = trace(run, 3)
    other = make_trace([(stage, "compute", "forward", stage, 0, 0, 9) for stage in (0, 1)], 2)
    both = joined_trace(run.layout, mine, other)
    assert both.roles == (
        "rank 0, stage 0, measured",
        "stage 0, predicted",
        "rank 1, stage 1, measured",
        "stage 1, predicted",
    )
    assert len(both.spans.start) == len(mine.spans.start) + len(other.spans.start)
    for role, (one, of) in enumerate(((mine, 0), (other, 0), (mine, 1), (other, 1))):
        own, its = both.spans.role == role, one.spans.role == of
        for name in ("stream", "chunk", "microbatch", "start", "end"):
            assert (getattr(both.spans, name)[own] == getattr(one.spans, name)[its]).all()
        words = [both.names[at] for at in both.spans.name[own]]
        assert words == [one.names[at] for at in one.spans.name[its]]


def test_of_many_ranks_of_a_stage_some_are_shown(tmp_path: Path) -> None:
    rows = [[("compute", "F", 0, 0, 0, 1)]] * 4
    run = read(run_of(tmp_path, rows, [(0, 2)] * 4, parallel={"pipeline": 1}))
    other = make_trace([(0, "compute", "forward", 0, 0, 0, 9)], 1)
    both = joined_trace(run.layout, trace(run, 1), other, most=2)
    assert [one.split(",")[0] for one in both.roles] == ["rank 0", "rank 1", "stage 0"]


def test_repetitions_written_out_are_what_a_whole_simulation_plays() -> None:
    """A long step played to its period and written out, beside the same one played to its end."""

    def program(microbatches: int):
        return by_hand(
            OneForwardOneBackward(kind="1f1b"),
            (3, 1, microbatches),
            lambda _: segment(100),
            lambda _: segment(200, "backward"),
            StageMessage(7.0, "nvlink", 3),
        )

    folded = simulate(program(400))
    assert folded.repeats > 1
    whole = unfolded(folded)
    assert whole.repeats == 1
    assert int(whole.spans.end.max()) == whole.step_ns == folded.step_ns
    _same_passes(whole, 400)


def _same_passes(whole: Trace, microbatches: int) -> None:
    """Every stage runs every pass once, its stream in order, and as long as its breakdown says."""
    spans = whole.spans
    for role, row in enumerate(whole.breakdown_ns):
        own = (spans.role == role) & (spans.stream == 0)
        assert int((spans.end - spans.start)[own].sum()) == row["compute"]
        assert (spans.start[own][1:] >= spans.end[own][:-1]).all()
        for name in range(len(whole.names)):
            batches = spans.microbatch[own & (spans.name == name)]
            if len(batches):
                assert np.array_equal(np.sort(batches), np.arange(microbatches))


def test_the_mean_rank_of_a_measured_step_sums_to_it(piped: Path) -> None:
    shown = trace(read(piped), 4)
    assert sum(mean(shown.breakdown_ns).values()) == shown.step_ns
    assert all(sum(one.values()) <= shown.step_ns for one in shown.ramp_ns)
