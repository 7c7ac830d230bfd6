"""What frameworks of reinforcement learning add to an iteration, each by itself: laws and sums."""

from __future__ import annotations

import pytest

from tests.kinds.iteration.iterations import APART, NAME, SMALL, planned, played, seconds
from twin.errors import ScenarioError
from twin.kinds.iteration.simulate import length_of
from twin.kinds.iteration.training import copy_ns
from twin.loading import load


def test_preparing_takes_its_time_for_each_sequence() -> None:
    before, after = played().rounds[0], played("rl.iteration.prepare=5ms").rounds[0]
    assert after.parts_ns["prepare"] == after.batch.sequences * 5_000_000
    assert after.length_ns - before.length_ns == after.parts_ns["prepare"]
    assert after.idle_ns["prepare"] == planned().gpus * after.parts_ns["prepare"]


def test_sequences_that_are_dropped_are_written_and_not_trained_on() -> None:
    whole, half = played().rounds[0], played("rl.iteration.kept=0.5").rounds[0]
    assert half.parts_ns["rollout"] == whole.parts_ns["rollout"]
    assert half.batch.sequences == whole.batch.sequences // 2
    assert half.batch.trained == pytest.approx(whole.batch.trained / 2, rel=0.25)
    assert half.parts_ns["train"] < whole.parts_ns["train"]


@pytest.mark.parametrize("steps", [2, 4, 8])
def test_steps_of_a_batch_dealt_at_once_wait_for_more_tokens(steps: int) -> None:
    share = f"rl.iteration.optimizer_steps={steps}"
    even = played(share).rounds[0].batch
    once = played(share, "rl.iteration.balance=iteration").rounds[0].batch
    assert once.trained == even.trained
    assert once.tokens * sum(once.steps) > even.tokens * sum(even.steps)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_a_stream_is_between_one_after_the_other_and_both_at_once(parts: int) -> None:
    whole = played(*APART).rounds[0]
    one = played(*APART, f"rl.iteration.stream={parts}").rounds[0]
    assert length_of("one_step_off", one.parts_ns) <= one.length_ns < whole.length_ns
    assert one.parts_ns == whole.parts_ns
    assert 0 < one.early_ns <= one.parts_ns["train"] + one.parts_ns["score"]
    spans = {span.phase: span for span in one.spans}
    rolled = one.parts_ns["rollout"] + one.parts_ns["rewards"]
    assert spans["score"].start_ns == rolled - one.early_ns
    assert sum(one.busy_ns.values()) + sum(one.idle_ns.values()) == planned().gpus * one.length_ns


def test_streams_need_gpus_of_their_own() -> None:
    with pytest.raises(ScenarioError, match="TW186"):
        load(NAME, [*SMALL, "rl.iteration.stream=2"])


def test_weights_that_engines_keep_go_to_the_host_and_back() -> None:
    plan = planned("rl.iteration.backup=true")
    before, after = played().rounds[0], played("rl.iteration.backup=true").rounds[0]
    one_way = copy_ns(plan.scenario.cluster, plan.room.weights)
    for phase in ("sleep", "wake"):
        assert after.parts_ns[phase] - before.parts_ns[phase] == one_way > 0
    assert after.length_ns - before.length_ns == 2 * one_way
    assert seconds(*APART, "rl.iteration.backup=true") == seconds(*APART)


def test_a_slow_way_to_the_host_is_only_that_way() -> None:
    slow = planned("rl.iteration.unload=1GB/s").switch
    assert slow.back_ns == round(slow.bytes)
    assert slow.ns == planned().switch.ns == planned().switch.back_ns
    parts = played("rl.iteration.unload=1GB/s").rounds[0].parts_ns
    assert (parts["load"], parts["unload"]) == (slow.ns, slow.back_ns)


def test_a_reference_in_the_host_is_swapped_for_its_pass_alone() -> None:
    """Out once and in twice, through pinned memory, which a slow way of states does not slow."""
    sets = ("rl.iteration.scores=2", "rl.iteration.unload=1GB/s")
    plan = planned(*sets, "rl.iteration.swap_reference=true")
    size = max(stage.categories["parameters"] for stage in plan.trainer.memory.stages)
    before = played(*sets).rounds[0]
    after = played(*sets, "rl.iteration.swap_reference=true").rounds[0]
    took = 3 * copy_ns(plan.trainer.scenario.cluster, size)
    assert after.parts_ns["swap"] == after.length_ns - before.length_ns == took > 0
    assert after.idle_ns["switch"] - before.idle_ns["switch"] == plan.gpus * took
    assert planned("rl.iteration.swap_reference=true").swap_ns == 0


def test_only_trainers_wait_while_a_reference_is_swapped() -> None:
    sets = (*APART, "rl.iteration.scores=2")
    plan = planned(*sets, "rl.iteration.swap_reference=true")
    before = played(*sets).rounds[0]
    after = played(*sets, "rl.iteration.swap_reference=true").rounds[0]
    now, then, took = after.idle_ns, before.idle_ns, plan.swap_ns
    assert now["switch"] - then["switch"] == plan.train_gpus * took > 0
    assert now["awaiting_training"] - then["awaiting_training"] == plan.rollout_gpus * took


def test_engines_may_quantise_new_weights_themselves() -> None:
    """More bytes travel, and take no more room than the engine's own weights."""
    fp8, bf16 = planned(), planned("rl.iteration.update.precision=bf16")
    assert bf16.update.payload > 1.5 * fp8.update.payload
    room = {fit.name: fit.bytes for fit in bf16.fits}["weight update"]
    buffers = bf16.update.memory.categories["buffers of the update"]
    assert room == pytest.approx(bf16.room.weights + buffers + bf16.spec.asleep)


def test_weights_on_devices_are_not_copied_from_a_host() -> None:
    host, device = (
        played(*APART, f"rl.iteration.update.source={source}").rounds[0].parts_ns["update"]
        for source in ("host", "device")
    )
    assert device < host
    assert planned(*APART, "rl.iteration.update.source=device").handing_ns == 0
