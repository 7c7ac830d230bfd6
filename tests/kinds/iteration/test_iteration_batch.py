"""Packing: nothing lost, nothing cut, as few micro-batches as equal lengths allow."""

from __future__ import annotations

import random

import pytest

import twin
from twin.engine import plan
from twin.kinds.iteration.training import (
    _with,
    at_once,
    batch,
    between,
    dealt,
    each_step,
    packed,
    padded,
    trained,
)
from twin.kinds.iteration.types import Batch
from twin.loading import load


def drawn(count: int, most: int, seed: int = 0) -> list[int]:
    dice = random.Random(seed)
    return [dice.randint(1, most) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_packing_loses_nothing_and_overfills_nothing(seed: int) -> None:
    lengths = drawn(500, 1000, seed)
    bins = packed(lengths, 1000)
    assert sum(one.tokens for one in bins) == sum(lengths)
    assert sum(one.squares for one in bins) == sum(n * n for n in lengths)
    assert max(one.tokens for one in bins) <= 1000
    assert len(bins) <= 11 / 9 * -(-sum(lengths) // 1000) + 1


def test_equal_lengths_fill_micro_batches_exactly() -> None:
    found = batch([250] * 64, 1000, each_step([250] * 64, 4, 2))
    assert found.steps == (2, 2)
    assert (found.filled, found.tokens, found.reach) == (1.0, 1000.0, 250.0)
    assert (found.sequences, found.trained) == (64, 16_000)


def test_replicas_have_as_many_micro_batches_each() -> None:
    found = batch([1000] * 5, 1000, each_step([1000] * 5, 4, 1))
    assert found.steps == (2,)
    assert found.filled == 5 / 8


def test_the_replica_with_most_attention_decides() -> None:
    """One long sequence beside many short ones that fill as many tokens."""
    lengths = [1000, *[100] * 10]
    found = batch(lengths, 1000, each_step(lengths, 2, 1))
    assert found.steps == (1,)
    assert (found.tokens, found.reach) == (1000.0, 1000.0)


def test_sequences_are_dealt_out_evenly_and_none_is_lost() -> None:
    lengths = drawn(400, 1000)
    shares = dealt(lengths, 4)
    assert sorted(length for share in shares for length in share) == sorted(lengths)
    loads = [sum(share) for share in shares]
    assert max(loads) - min(loads) <= 1000


def test_no_replica_waits_while_another_could_share() -> None:
    """Micro-batches with room for all would leave three of four replicas without any."""
    found = batch([100] * 8, 10_000, each_step([100] * 8, 4, 1))
    assert (found.steps, found.tokens) == ((1,), 200.0)


def test_padded_micro_batches_end_at_a_multiple_that_sequences_have_room_for() -> None:
    """Of 64: 100 tokens are 128, and 130 are 160, which is all there is room for."""
    made = padded([100, 90, 130, 120], 2, pad_to=64, most=160)
    assert [one.tokens for one in made] == [2 * 128, 2 * 160]


def test_padded_micro_batches_are_as_long_as_the_longest_of_theirs() -> None:
    """By hand: 10 and 20 in one, 30 and 50 in the next, 90 alone."""
    made = padded([50, 10, 90, 30, 20], 2)
    assert [one.tokens for one in made] == [40, 100, 90]
    assert [one.squares for one in made] == [2 * 20**2, 2 * 50**2, 90**2]


@pytest.mark.parametrize("seed", range(3))
def test_padding_computes_no_less_than_there_is_and_nothing_where_all_are_alike(seed: int) -> None:
    lengths = drawn(100, 500, seed)
    assert sum(one.tokens for one in padded(lengths, 8)) > sum(lengths)
    assert sum(one.tokens for one in padded(lengths, 1)) == sum(lengths)
    found = batch(lengths, 8, [[lengths]], padded)
    assert found.steps == (13,)
    assert found.filled == pytest.approx(
        sum(lengths) / sum(one.tokens for one in padded(lengths, 8))
    )
    alike = batch([64] * 32, 8, each_step([64] * 32, 2, 2), padded)
    assert (alike.steps, alike.tokens, alike.reach, alike.filled) == ((1, 1), 512.0, 64.0, 1.0)


def test_nothing_done_is_nothing_to_train_on() -> None:
    assert batch([], 1000, each_step([], 4, 2)).steps == ()


@pytest.mark.parametrize("reach", [125, 200, 333, 500, 990, 1000])
def test_what_is_linear_in_attention_is_met_at_every_reach(reach: float) -> None:
    """Seconds of 7 + 3 x (attention of n equal sequences), at n the batch need not have whole."""
    one = Batch(10, 1000, (1,), 1000.0, reach, 1.0)
    assert between(one, lambda n: round(7000 + 3e6 / n)) == pytest.approx(
        7000 + 3e6 * reach / 1000, rel=1e-5
    )


def test_sequences_dealt_at_once_are_even_over_all_steps_and_lost_in_none() -> None:
    lengths = drawn(64, 1000)
    shares = at_once(lengths, 4, 8)
    assert sorted(n for step in shares for one in step for n in one) == sorted(lengths)
    assert {len(one) for step in shares for one in step} == {2}
    loads = [sum(sum(step[one]) for step in shares) for one in range(4)]
    assert max(loads) - min(loads) <= 1000


def test_steps_of_sequences_dealt_at_once_wait_for_the_longest() -> None:
    """By hand: two replicas of 110 tokens each, but each step has the 100 of one of them."""
    lengths = [100, 10, 10, 100]
    assert at_once(lengths, 2, 2) == [[[100], [10]], [[10], [100]]]
    at_once_tokens = batch(lengths, 100, at_once(lengths, 2, 2)).tokens
    assert at_once_tokens == 100.0
    other = [100, 100, 10, 10]
    assert batch(other, 100, each_step(other, 2, 2)).tokens == 55.0


def test_a_run_splits_its_layers_once_whatever_its_sequences() -> None:
    """The split is left out, and other micro-batches would choose another one."""
    trainer = twin.plan(load("kimi-k2-rl-256xh800-disaggregated")).trainer
    written = ",".join(map(str, trainer.layers_per_part))
    one = Batch(10, 1000, (8,), 128_000.0, 45_000.0, 1.0)
    same = twin.plan(load("kimi-k2-rl-256xh800-disaggregated", [f"parallel.layers=[{written}]"]))
    assert trained(trainer, one, None) == trained(same.trainer, one, None)
    for n in (2, 3):
        step = plan(_with(trainer, one, 8, n))
        assert step.layers_per_part == trainer.layers_per_part
