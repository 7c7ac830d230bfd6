"""Rollouts against closed forms, and the laws that they keep."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kinds.rollouts.rollouts import STEP, one_turn, place, played, seconds, table
from twin.kinds.rollouts.plan import Rules, Sample

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=30)
SAMPLES = st.lists(
    st.builds(
        lambda prompt, written, read, wait: Sample(
            prompt,
            tuple(written),
            (read,) * (len(written) - 1),
            (round(wait * 1e9),) * (len(written) - 1),
        ),
        st.integers(1, 50),
        st.lists(st.integers(1, 60), min_size=1, max_size=5),
        st.integers(0, 20),
        st.floats(0.0, 2.0),
    ),
    min_size=1,
    max_size=20,
)


def test_one_request_takes_its_tokens_times_a_step() -> None:
    assert seconds(played([one_turn(500)])) == pytest.approx(500 * STEP)


def test_one_request_reads_a_context_that_grows() -> None:
    """Steps with 10, 11, ... 509 cached tokens."""
    got = seconds(played([one_turn(500)], steps=table(slope=1e-5)))
    assert got == pytest.approx(500 * STEP + 1e-5 * sum(range(10, 510)))


def test_a_request_that_is_left_goes_on_with_the_context_that_it_has() -> None:
    """100 steps of two, with 20, 22, ... 218 cached tokens; then 300 of one, with 110 to 409."""
    got = played([one_turn(100), one_turn(400)], steps=table(slope=1e-5))
    read = sum(range(20, 220, 2)) + sum(range(110, 410))
    assert seconds(got) == pytest.approx(400 * STEP + 1e-5 * read)


def test_a_prompt_is_prefilled_before_the_first_token() -> None:
    got = played([one_turn(10, prompt=100)], steps=table(prefill=1e-3))
    assert seconds(got) == pytest.approx(100 * 1e-3 + 10 * STEP)
    assert got.iterations[0].prefilled == 100


def test_equal_requests_end_together_and_in_rounds() -> None:
    """64 requests of 100 tokens on 16 slots: four rounds."""
    got = played([one_turn(100)] * 64, place(sequences=16))
    assert seconds(got) == pytest.approx(4 * 100 * STEP)
    assert len(set(got.iterations[0].done_ns)) == 4


def test_engines_share_requests_evenly() -> None:
    got = played([one_turn(100)] * 64, place(engines=4, sequences=16))
    assert seconds(got) == pytest.approx(100 * STEP)


def test_room_for_tokens_bounds_who_is_under_way() -> None:
    """110 tokens in the end; room for three of them."""
    got = played([one_turn(100)] * 9, place(tokens=330))
    assert seconds(got) == pytest.approx(3 * 100 * STEP)
    assert max(load.running for load in got.iterations[0].loads) == 3


def test_a_full_cache_puts_back_who_came_last_and_makes_its_cache_again() -> None:
    """By hand: three of 10 + 100 tokens, room for 240. With 80 each, after 70 steps, the third
    goes; two end 30 steps later with 110 each. It comes back with 80 tokens, and writes 30."""
    where = place(tokens=240, preempts=True)
    got = played([one_turn(100)] * 3, where, steps=table(prefill=1e-4)).iterations[0]
    assert got.again == got.prefilled - 30 == 80
    assert got.length_ns / 1e9 == pytest.approx(130 * STEP + 110e-4, rel=1e-3)
    assert got.written == 300


@pytest.mark.parametrize("tokens", [330, 700, 5000])
def test_room_by_need_is_never_slower_where_caches_are_made_for_nothing(tokens: int) -> None:
    """Every token is written once, whatever is put back; and no cache outgrows the room."""
    samples = [one_turn(20 + 7 * at % 90) for at in range(40)]
    whole, by_need = (
        played(samples, place(tokens=tokens, preempts=preempts)) for preempts in (False, True)
    )
    assert seconds(by_need) <= seconds(whole)
    assert by_need.iterations[0].written == whole.iterations[0].written
    assert set(by_need.done.values()) == set(whole.done.values())


def test_a_request_that_has_no_room_anywhere_is_refused() -> None:
    with pytest.raises(ValueError, match="110 tokens has no room"):
        played([one_turn(100)], place(tokens=109))


def test_turns_wait_for_their_environment() -> None:
    sample = Sample(10, (20, 30), (5,), (round(2e9),))
    got = played([sample], steps=table(prefill=1e-3))
    assert seconds(got) == pytest.approx(0.01 + 20 * STEP + 2 + 0.005 + 30 * STEP)
    spent = got.iterations[0].spent_ns
    assert spent["idle"] == pytest.approx(2e9)
    assert spent["prefill"] == pytest.approx(0.015e9)


def test_one_waits_while_the_other_writes() -> None:
    """Two requests of two turns: the waits are beside each other, and beside nothing else."""
    sample = Sample(10, (20, 30), (0,), (round(2e9),))
    assert seconds(played([sample] * 2)) == pytest.approx(2 + 50 * STEP)


def test_sandboxes_bound_who_has_begun() -> None:
    """Each needs 2.5 s with its sandbox; two at a time."""
    sample = Sample(10, (20, 30), (0,), (round(2e9),))
    got = played([sample] * 6, place(sandboxes=2))
    assert seconds(got) == pytest.approx(3 * 2.5)


def test_a_cache_that_is_given_up_is_made_again() -> None:
    sample = Sample(10, (20, 30), (5,), (round(2e9),))
    kept = played([sample]).iterations[0]
    again = played([sample], place(keeps_cache=False)).iterations[0]
    assert (kept.prefilled, kept.again) == (15, 0)
    assert (again.prefilled, again.again) == (10 + 35, 30)


def test_a_request_that_comes_meanwhile_joins_when_the_step_ends() -> None:
    """The second comes back 2.003 s after its first turn, in the middle of a step of the first."""
    long, back = one_turn(400), Sample(10, (10, 10), (0,), (round(2.003e9),))
    got = played([long, back]).iterations[0]
    assert got.done_ns[0] == pytest.approx(1e9 * (0.1 + 2.01 + 0.1), abs=2)
    assert got.length_ns == pytest.approx(400 * STEP * 1e9, abs=2)


def test_nine_of_ten_end_an_iteration_and_the_last_goes_on() -> None:
    samples = [one_turn(100)] * 9 + [one_turn(1000)]
    got = played(samples, rules=Rules(done=9), iterations=2)
    first, second = got.iterations
    assert first.length_ns == pytest.approx(100 * STEP * 1e9)
    assert (len(first.done_ns), first.carried, first.written) == (9, 1, 1000)
    assert second.again == 10 + 100
    assert got.left == {9: 200}


def test_a_budget_pauses_what_is_longer() -> None:
    samples = [one_turn(100)] * 9 + [one_turn(250)]
    got = played(samples, rules=Rules(budget=100), iterations=3)
    assert [one.length_ns for one in got.iterations] == pytest.approx([1e9, 1e9, 1e9])
    assert [one.carried for one in got.iterations] == [1, 1, 0]
    assert got.done[9] == 250


def test_a_long_tail_leaves_engines_nearly_empty() -> None:
    samples = [one_turn(100)] * 95 + [one_turn(2000)] * 5
    patient = played(samples).iterations[0]
    assert patient.tail == pytest.approx(0.95)
    hurried = played(samples, rules=Rules(done=90), iterations=8)
    assert max(one.tail for one in hurried.iterations) < 0.6
    assert hurried.written / hurried.length_ns > 2 * patient.written / patient.length_ns


def test_the_same_twice_is_the_same() -> None:
    samples = [Sample(10, (20, 30), (5,), (n * 10**8,)) for n in range(40)]
    assert played(samples, place(sequences=7)) == played(samples, place(sequences=7))


@settings(max_examples=60)
@given(SAMPLES, st.integers(1, 3), st.integers(1, 8), st.integers(1, 4), st.booleans())
def test_every_token_is_written_once(
    samples: list[Sample], engines: int, slots: int, iterations: int, keeps: bool
) -> None:
    where = place(engines, slots, sandboxes=5, keeps_cache=keeps)
    rules = Rules(done=max(1, len(samples) // 2), budget=70)
    got = played(samples, where, rules, table(prefill=1e-4), iterations)
    assert sum(got.done.values()) + sum(got.left.values()) == got.written
    assert not set(got.done) & set(got.left)
    total = {at: samples[at].tokens for at in range(len(samples))}
    for number, tokens in got.done.items():
        if number in total:  # of the first iteration, whose samples are known by number
            assert tokens == total[number]
    for one in got.iterations:
        assert sum(one.spent_ns.values()) == engines * one.length_ns
        assert all(0 <= load.running <= engines * slots for load in one.loads)
        assert list(one.done_ns) == sorted(one.done_ns)


@settings(max_examples=60)
@given(SAMPLES, st.integers(1, 3))
def test_no_rollout_is_shorter_than_its_longest_request(
    samples: list[Sample], engines: int
) -> None:
    got = seconds(played(samples, place(engines)))
    longest = max(STEP * one.tokens + sum(one.waits_ns) / 1e9 for one in samples)
    whole = STEP * sum(one.tokens for one in samples) + sum(sum(s.waits_ns) for s in samples) / 1e9
    # A step may be under way when an answer comes.
    slack = STEP * sum(len(one.waits_ns) for one in samples)
    assert longest - 1e-6 <= got <= whole + slack + 1e-6


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 12))
def test_more_slots_never_take_longer_where_a_step_costs_the_same(
    lengths: list[int], slots: int
) -> None:
    """Longest first, so that no order is lucky; the sum of the lengths over slots is a bound."""
    samples = [one_turn(length) for length in sorted(lengths, reverse=True)]
    few, many = (seconds(played(samples, place(sequences=n))) for n in (slots, 2 * slots))
    assert many <= few + 1e-9
    assert few >= STEP * sum(lengths) / slots - 1e-9
