"""Laws of every pipeline schedule, and the known in-flight counts and bubbles of each."""

import re
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.schedules.player import DeadlockError, most_in_flight, play
from twin.schedules import SCHEDULES, Action, Schedule

KINDS = ("1f1b", "gpipe", "interleaved_1f1b")


def schedule_of(kind: str) -> Schedule:
    return SCHEDULES[kind](kind=kind)


def runnable(kind: str) -> st.SearchStrategy[tuple[int, int, int]]:
    """Stages, chunks per stage and micro-batches that the schedule can run."""
    grid = product(range(1, 7), range(1, 5), range(1, 33))
    return st.sampled_from([shape for shape in grid if not schedule_of(kind).problems(*shape)])


def bubble(step: int, busy: int) -> Fraction:
    """Idle share of a stage that is busy for `busy`."""
    return Fraction(step - busy, step)


def test_the_registry_lists_every_schedule_under_its_kind():
    assert set(SCHEDULES) == set(KINDS)
    for kind, member in SCHEDULES.items():
        assert issubclass(member, Schedule)
        assert member(kind=kind).kind == kind
        assert member.model_validate({"kind": kind}) == member(kind=kind)


@pytest.mark.parametrize("kind", SCHEDULES)
@given(data=st.data())
def test_each_chunk_runs_each_microbatch_once_forwards_and_once_backwards(kind, data):
    stages, chunks, microbatches = shape = data.draw(runnable(kind))
    for stage, order in enumerate(schedule_of(kind).order(*shape)):
        wanted = {
            Action(step, chunk, microbatch)
            for step in ("F", "B")
            for chunk in range(stage, stages * chunks, stages)
            for microbatch in range(microbatches)
        }
        assert set(order) == wanted
        assert len(order) == len(wanted)


@pytest.mark.parametrize("kind", SCHEDULES)
@given(data=st.data())
def test_a_backward_follows_its_forward_and_microbatches_keep_their_order(kind, data):
    for order in schedule_of(kind).order(*data.draw(runnable(kind))):
        place = {action: i for i, action in enumerate(order)}
        for action, i in place.items():
            if action.kind == "B":
                assert place[Action("F", action.chunk, action.microbatch)] < i
            if action.microbatch:
                assert place[Action(action.kind, action.chunk, action.microbatch - 1)] < i


@pytest.mark.parametrize("kind", SCHEDULES)
@given(data=st.data(), forward=st.integers(1, 9), backward=st.integers(1, 9))
def test_no_order_deadlocks_and_no_step_beats_its_busiest_stage(kind, data, forward, backward):
    stages, chunks, microbatches = shape = data.draw(runnable(kind))
    step = play(schedule_of(kind).order(*shape), stages * chunks, forward, backward)
    assert step >= chunks * microbatches * (forward + backward)


def test_the_player_sees_a_deadlock_when_a_stage_waits_for_what_waits_for_it():
    one, two = schedule_of("1f1b").order(2, 1, 2)
    with pytest.raises(DeadlockError):
        play((one[::-1], two), chunks=2)


@pytest.mark.parametrize("kind", ["1f1b", "gpipe"])
@given(
    data=st.data(),
    forward=st.integers(1, 9),
    backward=st.integers(1, 9),
)
def test_the_bubble_of_one_chunk_per_stage_is_that_of_theory(kind, data, forward, backward):
    stages, _, microbatches = shape = data.draw(runnable(kind))
    step = play(schedule_of(kind).order(*shape), stages, forward, backward)
    theory = Fraction(stages - 1, microbatches + stages - 1)
    assert bubble(step, microbatches * (forward + backward)) == theory


@given(
    stages=st.integers(1, 6),
    chunks=st.integers(2, 4),
    rounds=st.integers(1, 4),
    backward=st.integers(1, 3),
)
def test_the_bubble_of_interleaved_is_shorter_by_the_chunks(stages, chunks, rounds, backward):
    microbatches = rounds * stages
    orders = schedule_of("interleaved_1f1b").order(stages, chunks, microbatches)
    busy = chunks * microbatches * (1 + backward)
    theory = Fraction(stages - 1, chunks * microbatches + stages - 1)
    assert bubble(play(orders, stages * chunks, 1, backward), busy) == theory


def test_1f1b_of_two_stages_and_three_microbatches_is_the_one_drawn_by_hand():
    first, second = schedule_of("1f1b").order(2, 1, 3)
    written = [" ".join(f"{a.kind}{a.microbatch}" for a in order) for order in (first, second)]
    assert written == ["F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"]
    assert play((first, second), chunks=2) == 8


@given(shape=st.tuples(st.integers(1, 8), st.just(1), st.integers(1, 24)))
def test_1f1b_keeps_one_microbatch_per_later_stage_and_its_own_in_flight(shape):
    stages, _, microbatches = shape
    for stage, order in enumerate(schedule_of("1f1b").order(*shape)):
        assert most_in_flight(order) == min(microbatches, stages - stage)


@given(shape=st.tuples(st.integers(1, 8), st.just(1), st.integers(1, 24)))
def test_gpipe_keeps_every_microbatch_in_flight(shape):
    assert {most_in_flight(order) for order in schedule_of("gpipe").order(*shape)} == {shape[2]}


@given(stages=st.integers(1, 6), chunks=st.integers(2, 4), rounds=st.integers(1, 4))
def test_interleaved_keeps_its_warm_up_and_one_more_in_flight(stages, chunks, rounds):
    shape = (stages, chunks, rounds * stages)
    for stage, order in enumerate(schedule_of("interleaved_1f1b").order(*shape)):
        warmup = 2 * (stages - 1 - stage) + (chunks - 1) * stages
        assert most_in_flight(order) == min(warmup + 1, shape[2] * chunks)


@pytest.mark.parametrize("kind", ["1f1b", "interleaved_1f1b"])
@given(data=st.data())
def test_after_the_warm_up_the_pattern_repeats_with_its_period(kind, data):
    _, chunks, microbatches = shape = data.draw(runnable(kind))
    schedule = schedule_of(kind)
    orders = schedule.order(*shape)
    period = schedule.period(*shape)
    assert period is not None
    warmup = schedule.warmup_microbatches(*shape)
    for order in orders:
        lead = next(i for i, action in enumerate(order) if action.kind == "B")
        steady = order[lead:]
        assert lead - 1 <= warmup * chunks
        width = 2 * period * chunks
        while_forwards = 2 * microbatches * chunks - 2 * lead
        for now, later in zip(steady[:while_forwards], steady[width:while_forwards], strict=False):
            assert later == Action(now.kind, now.chunk, now.microbatch + period)


@pytest.mark.parametrize("kind", ["1f1b", "interleaved_1f1b"])
@given(data=st.data())
def test_a_step_shorter_by_whole_periods_starts_and_ends_alike(kind, data):
    stages, chunks, microbatches = shape = data.draw(runnable(kind))
    schedule = schedule_of(kind)
    period = schedule.period(*shape)
    spare = microbatches - schedule.warmup_microbatches(*shape)
    removed = period * data.draw(st.integers(0, max(0, spare // period - 1)))
    shorter = (stages, chunks, microbatches - removed)
    assert schedule.period(*shorter) == period
    for whole, part in zip(schedule.order(*shape), schedule.order(*shorter), strict=True):
        warm = next(i for i, action in enumerate(whole) if action.kind == "B")
        assert part[:warm] == whole[:warm]
        shifted = [Action(a.kind, a.chunk, a.microbatch + removed) for a in part[-warm:]]
        assert shifted == list(whole[-warm:])


def test_gpipe_has_no_steady_state():
    assert schedule_of("gpipe").period(4, 1, 64) is None


@pytest.mark.parametrize("kind", ["1f1b", "gpipe"])
def test_one_chunk_schedules_refuse_virtual_stages_and_name_both_fixes(kind):
    (obstacle,) = schedule_of(kind).problems(4, 2, 8)
    assert obstacle.field == "parallel.virtual"
    assert obstacle.message == f"{kind} runs one chunk per stage, not 2"
    assert obstacle.hint == "set virtual to 1, or schedule kind to interleaved_1f1b"


def test_interleaved_refuses_a_single_chunk_per_stage():
    (obstacle,) = schedule_of("interleaved_1f1b").problems(4, 1, 8)
    assert obstacle.field == "parallel.virtual"
    assert obstacle.hint == "set virtual to 2, or schedule kind to 1f1b"


def test_interleaved_names_the_nearest_microbatch_counts_that_go():
    (obstacle,) = schedule_of("interleaved_1f1b").problems(16, 4, 1030)
    assert obstacle.field == "train.global_batch"
    assert "1030 micro-batches in 64 rounds" in obstacle.message
    assert "1024 or 1040 micro-batches" in obstacle.hint


@given(stages=st.integers(1, 32), microbatches=st.integers(1, 400))
def test_the_named_microbatch_counts_go_and_none_between_them_does(stages, microbatches):
    schedule = schedule_of("interleaved_1f1b")
    obstacles = schedule.problems(stages, 2, microbatches)
    assume(obstacles)
    below, above, _ = map(int, re.findall(r"\d+", obstacles[0].hint))
    goes = [m for m in range(below, above + 1) if not schedule.problems(stages, 2, m)]
    assert goes == [below, above]
    assert below < microbatches < above


@pytest.mark.parametrize(
    ("kind", "shape"), [("1f1b", (4, 2, 8)), ("gpipe", (4, 2, 8)), ("interleaved_1f1b", (4, 2, 9))]
)
def test_an_order_that_cannot_run_is_refused_with_its_reason(kind, shape):
    with pytest.raises(ValueError, match=kind):
        schedule_of(kind).order(*shape)
