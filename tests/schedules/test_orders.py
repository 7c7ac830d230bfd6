"""Laws of every pipeline schedule, and the known in-flight counts and bubbles of each."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.schedules.player import DeadlockError, Times, most_in_flight, play
from twin.schedules import KNOWN, SCHEDULES
from twin.schedules.base import Schedule
from twin.schedules.interleaved import Interleaved

SETTINGS: dict[str, dict[str, bool | int]] = {
    "1f1b": {},
    "dualpipe": {},
    "gpipe": {},
    "interleaved_1f1b": {},
    "kimi-k2": {"extra_warmup": 1, "overlap_all_to_all": True, "defer_weight_grad": True},
    "overlapped": {"extra_warmup": 1, "overlap_all_to_all": True},
    "deferred": {"defer_weight_grad": True},
    "zb_h1": {},
    "zb_h2": {},
    "zb_2p": {"weights_late": 4},
}
"""Every schedule, and the settings that change an order."""

REPEATING = tuple(name for name in SETTINGS if name != "gpipe")


def schedule_of(name: str) -> Schedule:
    kind = "zb_h2" if name == "zb_2p" else name
    kind = kind if kind in SCHEDULES else "interleaved_1f1b"
    return SCHEDULES[kind].model_validate({"kind": kind} | SETTINGS[name])


def runnable(name: str) -> st.SearchStrategy[tuple[int, int, int]]:
    """Stages, chunks per stage and micro-batches that the schedule can run."""
    grid = product(range(1, 7), range(1, 5), range(1, 33))
    return st.sampled_from([shape for shape in grid if not schedule_of(name).problems(*shape)])


def chunks_on(schedule: Schedule, shape: tuple[int, int, int], stage: int) -> list[int]:
    chunk_map = schedule.chunk_map(shape[0], shape[1])
    return [chunk for chunk, own in enumerate(chunk_map.stage_of) if own == stage]


def visits(schedule: Schedule, shape: tuple[int, int, int], chunk: int) -> set[int]:
    """The micro-batches that pass a chunk: all, or half of them where there are two chains."""
    chunk_map = schedule.chunk_map(shape[0], shape[1])
    chains = chunk_map.after.count(None)
    parts = chunk_map.parts
    return set(range(chunk // parts, shape[2], chains))


def test_every_schedule_is_tested_here_and_found_under_its_kind():
    assert {schedule_of(name).kind for name in SETTINGS} == set(KNOWN)
    for kind, member in KNOWN.items():
        assert issubclass(member, Schedule)
        assert member(kind=kind).kind == kind
        assert member.model_validate({"kind": kind}) == member(kind=kind)


@pytest.mark.parametrize("name", SETTINGS)
@given(data=st.data())
def test_each_chunk_runs_each_microbatch_once_forwards_and_once_backwards(name, data):
    schedule = schedule_of(name)
    shape = data.draw(runnable(name))
    for stage, order in enumerate(schedule.order(*shape)):
        forwards = [(a.chunk, a.microbatch) for a in order if a.kind == "F"]
        backwards = [(a.chunk, a.microbatch) for a in order if a.kind in "BI"]
        inputs = [(a.chunk, a.microbatch) for a in order if a.kind == "I"]
        weights = [(a.chunk, a.microbatch) for a in order if a.kind == "W"]
        wanted = {
            (chunk, microbatch)
            for chunk in chunks_on(schedule, shape, stage)
            for microbatch in visits(schedule, shape, chunk)
        }
        assert sorted(forwards) == sorted(backwards) == sorted(wanted)
        assert sorted(inputs) == sorted(weights)


@pytest.mark.parametrize("name", SETTINGS)
@given(data=st.data())
def test_a_backward_follows_its_forward_and_microbatches_keep_their_order(name, data):
    for order in schedule_of(name).order(*data.draw(runnable(name))):
        place = {(a.kind, a.chunk, a.microbatch): i for i, a in enumerate(order)}
        backward = place | {("I", c, m): i for (kind, c, m), i in place.items() if kind == "B"}
        for (kind, chunk, microbatch), i in place.items():
            if kind in "BI":
                assert place["F", chunk, microbatch] < i
            if kind == "W":
                assert place["I", chunk, microbatch] < i
            kind_before = "I" if kind in "BI" else kind
            for earlier in range(microbatch):
                assert backward.get((kind_before, chunk, earlier), -1) < i


@pytest.mark.parametrize("name", SETTINGS)
@given(data=st.data())
def test_a_pair_is_a_forward_and_the_backward_of_another_microbatch(name, data):
    for order in schedule_of(name).order(*data.draw(runnable(name))):
        for action, following in zip(order, (*order[1:], None), strict=True):
            if action.paired:
                assert action.kind == "F"
                assert following is not None
                assert following.kind in "BI"
                assert (following.chunk, following.microbatch) != (action.chunk, action.microbatch)


@pytest.mark.parametrize("name", SETTINGS)
@given(
    data=st.data(),
    times=st.builds(Times, st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
)
def test_no_order_deadlocks_and_no_step_beats_its_busiest_stage(name, data, times):
    _, chunks, microbatches = shape = data.draw(runnable(name))
    step = play(schedule_of(name), shape, times)
    assert step.length >= chunks * microbatches * (times.forward + times.backward)


def test_pairs_without_the_extra_warm_up_deadlock_and_are_refused():
    shape = (4, 2, 8)
    wrong = SCHEDULES["interleaved_1f1b"].model_validate(
        {"kind": "interleaved_1f1b", "overlap_all_to_all": True}
    )
    (obstacle,) = wrong.problems(*shape)
    assert obstacle.field == "parallel.schedule.overlap_all_to_all"
    assert "deadlocks" in obstacle.message
    assert "extra_warmup to 1" in obstacle.hint
    orders = tuple(wrong.stage_order(stage, *shape) for stage in range(4))
    with pytest.raises(DeadlockError):
        play(wrong, shape, orders=orders)


def test_one_stage_pairs_each_forward_with_the_backward_before_it() -> None:
    own = Interleaved(overlap_all_to_all=True, extra_warmup=1)
    assert not own.problems(1, 1, 3)
    order = [(one.kind, one.microbatch, one.paired) for one in own.stage_order(0, 1, 1, 3)]
    assert order == [
        ("F", 0, False), ("F", 1, True), ("B", 0, False), ("F", 2, True), ("B", 1, False),
        ("B", 2, False),
    ]  # fmt: skip
    assert Interleaved().problems(1, 1, 3), "without pairs it is plain 1f1b"
    assert own.problems(2, 1, 4), "on two stages it needs two chunks"


def test_no_pair_deadlocks_where_the_warm_up_takes_all_forwards_of_some_stages():
    """16 stages of 4 chunks and 16 micro-batches: the first stages' warm-up is capped."""
    assert play(schedule_of("kimi-k2"), (16, 4, 16)).length > 0


@given(data=st.data())
def test_the_extra_warm_up_is_one_forward_and_nothing_else(data):
    shape = data.draw(runnable("overlapped"))
    assume(shape[1] > 1)
    plain, extra = (schedule_of(name).order(*shape) for name in ("interleaved_1f1b", "overlapped"))
    for before, after in zip(plain, extra, strict=True):
        warm = [next(i for i, a in enumerate(o) if a.kind == "B") for o in (before, after)]
        forwards = shape[1] * shape[2]
        # The steady state's first forward stands before the first backward, too.
        assert warm[1] == min(warm[0] + 1, forwards)
        for kind in "FB":
            own = [[a for a in o if a.kind == kind] for o in (before, after)]
            assert [replace(a, paired=False) for a in own[1]] == own[0]


def test_the_player_sees_a_deadlock_when_a_stage_waits_for_what_waits_for_it():
    schedule = schedule_of("1f1b")
    one, two = schedule.order(2, 1, 2)
    with pytest.raises(DeadlockError):
        play(schedule, (2, 1, 2), orders=(one[::-1], two))


def halves(backward: int) -> Times:
    """A forward of 2 and a backward of twice the given, in equal halves."""
    return Times(forward=2, inputs=backward, weights=backward)


@pytest.mark.parametrize("kind", ["1f1b", "gpipe"])
@given(
    data=st.data(),
    forward=st.integers(1, 9),
    backward=st.integers(1, 9),
)
def test_the_bubble_of_one_chunk_per_stage_is_that_of_theory(kind, data, forward, backward):
    stages, _, microbatches = shape = data.draw(runnable(kind))
    step = play(schedule_of(kind), shape, Times(forward, backward, backward))
    assert step.bubble() == Fraction(stages - 1, microbatches + stages - 1)


@given(
    stages=st.integers(1, 6),
    chunks=st.integers(2, 4),
    rounds=st.integers(1, 4),
    backward=st.integers(1, 3),
)
def test_the_bubble_of_interleaved_is_shorter_by_the_chunks(stages, chunks, rounds, backward):
    shape = (stages, chunks, rounds * stages)
    theory = Fraction(stages - 1, chunks * shape[2] + stages - 1)
    assert play(schedule_of("interleaved_1f1b"), shape, halves(backward)).bubble() == theory


@given(
    shape=st.sampled_from(
        [(p, 1, p * n + more) for p in range(1, 9) for n in (1, 3) for more in (0, 3)]
    ),
    forward=st.integers(1, 9),
    inputs=st.integers(1, 9),
    weights=st.integers(1, 9),
)
def test_the_bubble_of_zb_h1_is_that_of_theory(shape, forward, inputs, weights):
    """(p - 1)(F + B - 2 W), which is (p - 1)(F + I - W): Qi et al. 2023, section 2.2. It holds
    where weights take no longer than either other pass."""
    assume(weights <= min(forward, inputs))
    step = play(schedule_of("zb_h1"), shape, Times(forward, inputs, weights))
    assert set(step.idle) == {(shape[0] - 1) * (forward + inputs - weights)}


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
@pytest.mark.parametrize("more", [0, 2, 16])
def test_the_bubble_of_dualpipe_is_that_of_theory(stages, more):
    """(p / 2 - 1)(F&B + B - 3 W): DeepSeek-V3, table 2; for equal F, I and W, the case it is drawn
    for, and a pair as long as its halves."""
    step = play(schedule_of("dualpipe"), (stages, 1, 2 * stages + more), Times(1, 1, 1, pair=3))
    assert set(step.idle) == {(stages // 2 - 1) * (3 + 2 - 3)}


def test_the_bubbles_of_the_schedules_order_as_published():
    """DualPipe's is the smallest, then ZB-H1's, then 1F1B's, at equal passes."""
    shape = (8, 1, 16)
    idle = [play(schedule_of(name), shape).idle[0] for name in ("dualpipe", "zb_h1", "1f1b")]
    assert idle == [6, 7, 21]


@given(data=st.data())
def test_weight_gradients_put_off_never_lengthen_the_step(data):
    shape = data.draw(runnable("deferred"))
    times = data.draw(st.builds(Times, st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)))
    deferred, plain = (play(schedule_of(n), shape, times) for n in ("deferred", "interleaved_1f1b"))
    assert deferred.length <= plain.length


def test_1f1b_of_two_stages_and_three_microbatches_is_the_one_drawn_by_hand():
    first, second = schedule_of("1f1b").order(2, 1, 3)
    written = [" ".join(f"{a.kind}{a.microbatch}" for a in order) for order in (first, second)]
    assert written == ["F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"]
    assert play(schedule_of("1f1b"), (2, 1, 3), Times(2, 1, 1)).length == 16


def test_zb_h1_of_two_stages_and_three_microbatches_is_the_one_drawn_by_hand():
    written = [
        " ".join(f"{a.kind}{a.microbatch}" for a in order)
        for order in schedule_of("zb_h1").order(2, 1, 3)
    ]
    assert written == ["F0 F1 I0 W0 F2 I1 W1 I2 W2", "F0 I0 F1 I1 W0 F2 I2 W1 W2"]


def test_dualpipe_of_two_stages_and_four_microbatches_is_the_one_drawn_by_hand():
    """Stage 0 holds chunk 0 (part 0, up) and chunk 3 (part 1, down); `+` marks a pair."""
    first, second = schedule_of("dualpipe").order(2, 1, 4)
    written = " ".join(f"{a.kind}{a.chunk}.{a.microbatch}{'+' * a.paired}" for a in first)
    assert written == ("F0.0 F3.1 F0.2 B3.1 F3.3+ B0.0 B3.3 I0.2 W0.2")
    assert {a.chunk for a in second} == {1, 2}


@given(shape=st.tuples(st.integers(1, 8), st.just(1), st.integers(1, 24)))
def test_1f1b_keeps_one_microbatch_per_later_stage_and_its_own_in_flight(shape):
    stages, _, microbatches = shape
    for stage, order in enumerate(schedule_of("1f1b").order(*shape)):
        assert most_in_flight(order) == min(microbatches, stages - stage)


@given(shape=st.tuples(st.integers(1, 8), st.just(1), st.integers(1, 24)))
def test_gpipe_keeps_every_microbatch_in_flight(shape):
    assert {most_in_flight(order) for order in schedule_of("gpipe").order(*shape)} == {shape[2]}


@given(shape=st.tuples(st.integers(1, 8), st.just(1), st.integers(1, 24)))
def test_zb_h1_keeps_no_more_than_the_first_stage_of_1f1b(shape):
    stages, _, microbatches = shape
    for order in schedule_of("zb_h1").order(*shape):
        assert most_in_flight(order) <= min(microbatches, stages)


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
def test_dualpipe_keeps_one_more_than_its_stages_and_two_copies_of_the_model(stages):
    """DeepSeek-V3, table 2: activations of p + 1, parameters twice."""
    schedule = schedule_of("dualpipe")
    orders = schedule.order(stages, 1, 4 * stages)
    assert max(most_in_flight(order) for order in orders) == stages + 1
    chunk_map = schedule.chunk_map(stages, 1)
    assert (chunk_map.copies, chunk_map.parts) == (2, stages)


@given(stages=st.integers(1, 6), chunks=st.integers(2, 4), rounds=st.integers(1, 4))
def test_interleaved_keeps_its_warm_up_and_one_more_in_flight(stages, chunks, rounds):
    shape = (stages, chunks, rounds * stages)
    for stage, order in enumerate(schedule_of("interleaved_1f1b").order(*shape)):
        warmup = 2 * (stages - 1 - stage) + (chunks - 1) * stages
        assert most_in_flight(order) == min(warmup + 1, shape[2] * chunks)


@pytest.mark.parametrize("name", REPEATING)
@given(data=st.data())
def test_between_warm_up_and_cool_down_the_pattern_repeats_with_its_period(name, data):
    shape = data.draw(runnable(name))
    schedule = schedule_of(name)
    period = schedule.period(*shape)
    assert period is not None
    for order in schedule.order(*shape):
        forwards = [i for i, action in enumerate(order) if action.kind == "F"]
        per_microbatch = len(forwards) // shape[2]
        margin = schedule.warmup_microbatches(*shape) * per_microbatch
        starts = forwards[margin : len(forwards) - margin : period * per_microbatch]
        periods = [order[begin:end] for begin, end in pairwise(starts)]
        for earlier, later in pairwise(periods):
            assert later == tuple(replace(a, microbatch=a.microbatch + period) for a in earlier)


@pytest.mark.parametrize("name", REPEATING)
@given(data=st.data())
def test_a_step_shorter_by_whole_periods_starts_and_ends_alike(name, data):
    stages, chunks, microbatches = shape = data.draw(runnable(name))
    schedule = schedule_of(name)
    period = schedule.period(*shape)
    assert period is not None
    spare = microbatches - schedule.warmup_microbatches(*shape)
    removed = period * data.draw(st.integers(0, max(0, spare // period - 1)))
    shorter = (stages, chunks, microbatches - removed)
    assert schedule.period(*shorter) == period
    for whole, part in zip(schedule.order(*shape), schedule.order(*shorter), strict=True):
        warm = next(i for i, action in enumerate(whole) if action.kind != "F")
        assert part[:warm] == whole[:warm]
        shifted = [replace(a, microbatch=a.microbatch + removed) for a in part[-warm:]]
        assert shifted == list(whole[-warm:])


def test_gpipe_has_no_steady_state():
    assert schedule_of("gpipe").period(4, 1, 64) is None


@pytest.mark.parametrize("kind", ["1f1b", "gpipe", "zb_h1", "zb_h2", "dualpipe"])
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
    ("kind", "shape"),
    [
        ("1f1b", (4, 2, 8)),
        ("gpipe", (4, 2, 8)),
        ("interleaved_1f1b", (4, 2, 9)),
        ("zb_h1", (4, 2, 8)),
        ("zb_h2", (4, 2, 8)),
        ("dualpipe", (3, 1, 8)),
        ("dualpipe", (4, 1, 7)),
        ("dualpipe", (4, 1, 6)),
    ],
)
def test_an_order_that_cannot_run_is_refused_with_its_reason(kind, shape):
    with pytest.raises(ValueError, match=kind):
        schedule_of(kind).order(*shape)


def test_one_stage_puts_off_no_weight_gradients():
    """It sends no gradient that they could run under."""
    alone = schedule_of("kimi-k2").order(1, 1, 8)[0]
    assert {action.kind for action in alone} == {"F", "B"}
    assert alone == schedule_of("overlapped").order(1, 1, 8)[0]
    assert {action.kind for action in schedule_of("kimi-k2").order(2, 2, 8)[0]} == {"F", "I", "W"}
