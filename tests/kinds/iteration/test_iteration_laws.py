"""Laws of an iteration: all GPU time has a place, modes order as they must, equal lengths have a
closed form, and faster links never make it longer."""

from __future__ import annotations

import pytest

import twin
from tests.kinds.iteration.iterations import (
    ALIKE,
    APART,
    BESIDE,
    NAME,
    SMALL,
    planned,
    played,
    reported,
    seconds,
)
from twin.engine import lower, plan, simulate
from twin.errors import ScenarioError
from twin.kinds.iteration.training import states_of
from twin.loading import load
from twin.network.links import capacity, latency, sharers

MODES = {"colocated": (), "disaggregated": APART, "one_step_off": BESIDE}
ENVIRONMENT = (
    "rl.rollout.turns={kind: constant, each: 3}",
    "rl.rollout.environment={latency: 60s, sigma: 0.5}",
)


@pytest.mark.parametrize("mode", MODES)
def test_work_and_causes_of_idle_time_sum_to_all_gpus_exactly(mode: str) -> None:
    plan_of, trace = planned(*MODES[mode], *ENVIRONMENT), played(*MODES[mode], *ENVIRONMENT)
    for one in trace.rounds:
        parts = [*one.busy_ns.values(), *one.idle_ns.values()]
        assert min(parts) >= 0
        assert sum(parts) == plan_of.gpus * one.length_ns
        assert one.idle_ns["sandbox"] > 0


def test_the_share_that_is_done_is_told_and_grows() -> None:
    shares: list[float] = []
    twin.simulate(planned(), shares.append)
    assert shares == sorted({*shares})
    assert 0 < shares[0] <= shares[-1] < 1


def test_colocated_is_the_sum_of_its_phases() -> None:
    for one in played().rounds:
        assert one.length_ns == sum(one.parts_ns.values())
        ends = [span.end_ns for span in one.spans]
        assert [0, *ends[:-1]] == [span.start_ns for span in one.spans]
        assert ends[-1] == one.length_ns


def test_apart_is_the_sum_of_its_phases_and_moves_no_states() -> None:
    for one in played(*APART).rounds:
        assert one.length_ns == sum(one.parts_ns.values())
        assert one.parts_ns["load"] == one.parts_ns["unload"] == 0


@pytest.mark.parametrize(
    "more", [(), (ALIKE,), ("rl.iteration.scores=200",), ("rl.iteration.rewards=5min",)]
)
def test_one_step_off_is_never_slower_than_one_after_the_other(more: tuple[str, ...]) -> None:
    assert seconds(*BESIDE, *more) <= seconds(*APART, *more)


def test_one_step_off_hides_the_shorter_side() -> None:
    trainers = ("rl.iteration.scores=300", ALIKE, *BESIDE)
    long = played(*trainers).rounds[0]
    learnt = long.parts_ns["score"] + long.parts_ns["train"]
    assert learnt > long.parts_ns["rollout"] + long.parts_ns["rewards"]
    assert long.length_ns == learnt + long.parts_ns["update"] + long.parts_ns["wake"]
    assert long.idle_ns["awaiting_training"] > 0
    assert long.idle_ns["awaiting_rollouts"] == 0
    short = played(*BESIDE).rounds[0]
    assert short.idle_ns["awaiting_training"] == 0
    assert short.idle_ns["awaiting_rollouts"] > 0


def test_equal_sequences_train_as_the_step_simulator_says() -> None:
    """128 sequences of 2,048 tokens, four to a micro-batch, on 16 replicas: two micro-batches
    each."""
    found = planned(ALIKE)
    assert found.trainer.mesh.data == 16
    same = [
        *(one for one in SMALL if not one.startswith("train.")),
        "train.sequence=2048tok",
        "parallel.micro_batch=4",
        "train.global_batch=128seq",
        f"parallel.layers={list(found.trainer.layers_per_part)}",
    ]
    alone = load("kimi-k2-256xh800", [one for one in same if "rl." not in one])
    step = simulate(lower(plan(alone)))
    (one,) = played(ALIKE).rounds
    assert one.batch.steps == (2,)
    assert one.batch.filled == 1.0
    assert one.batch.reach == 2048
    assert one.parts_ns["train"] == pytest.approx(step.step_ns, rel=1e-3)


def test_optimizer_steps_share_the_sequences() -> None:
    whole, parts = (played(ALIKE, f"rl.iteration.optimizer_steps={n}").rounds[0] for n in (1, 2))
    assert parts.batch.steps == (1, 1)
    assert parts.batch.trained == whole.batch.trained
    assert parts.parts_ns["train"] > whole.parts_ns["train"]
    assert parts.parts_ns["score"] == whole.parts_ns["score"]


def test_longer_sequences_attend_further_and_take_longer() -> None:
    """As many tokens, in sequences half as many and twice as long."""
    short, long = (
        played(
            f"rl.rollout.written={{kind: constant, each: {each}}}", f"rl.rollout.requests={n}"
        ).rounds[0]
        for each, n in ((1548, 128), (3596, 64))
    )
    assert short.batch.trained == long.batch.trained
    assert long.parts_ns["train"] > short.parts_ns["train"]
    assert long.parts_ns["score"] > short.parts_ns["score"]


def test_a_pass_forward_takes_a_third_or_less_of_a_step() -> None:
    one = played(ALIKE).rounds[0]
    assert 0.1 < one.parts_ns["score"] / one.parts_ns["train"] < 0.4
    twice = played(ALIKE, "rl.iteration.scores=2").rounds[0]
    assert twice.parts_ns["score"] == 2 * one.parts_ns["score"]
    assert played(ALIKE, "rl.iteration.scores=0").rounds[0].parts_ns["score"] == 0


def test_a_switch_copies_states_of_the_ledger_at_the_slowest_links_rate() -> None:
    found = planned()
    cluster, memory = found.scenario.cluster, found.trainer.memory
    size = max(states_of(stage) for stage in memory.stages)
    fullest = max(memory.stages, key=states_of).categories
    held = sum(fullest[key] for key in ("parameters", "optimizer_dense", "optimizer_expert"))
    assert size == held > 1e9
    rate = min(capacity(cluster, "pcie"), capacity(cluster, "dram") / sharers(cluster, "dram"))
    expected = size / rate + latency(cluster, "pcie")
    assert found.switch.ns == pytest.approx(1e9 * expected, rel=1e-6)


@pytest.mark.parametrize(
    ("link", "slow", "fast"),
    [
        ("host.pcie", "8GB/s", "16GB/s"),
        ("host.pcie", "32GB/s", "64GB/s"),
        ("nic", "100Gbps", "400Gbps"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_faster_links_never_make_an_iteration_longer(
    mode: str, link: str, slow: str, fast: str
) -> None:
    took = [seconds(*MODES[mode], f"cluster.node.{link}.bandwidth={rate}") for rate in (fast, slow)]
    assert took[0] <= took[1]


def test_a_side_that_sleeps_on_the_device_takes_room_from_the_other() -> None:
    light, heavy = (planned(f"rl.iteration.asleep={size}GiB") for size in (0, 10))
    assert heavy.room.cache == light.room.cache - 10 * 2**30
    assert heavy.fits[0].bytes == light.fits[0].bytes + 10 * 2**30
    assert planned(*APART, "rl.iteration.asleep=10GiB").room == planned(*APART).room


def test_what_does_not_fit_is_named() -> None:
    report = reported("rl.iteration.asleep=60GiB")
    assert not report.fits
    assert report.verdict.startswith("Does not fit: trainer beside sleeping engines takes")


def test_key_figures_follow_from_the_iteration() -> None:
    report = reported()
    kpis = report.kpis
    one = kpis["iteration_seconds"]
    assert one is not None
    assert kpis["iterations_per_day"] == pytest.approx(86400 / one)
    assert kpis["cost_usd_per_iteration"] == pytest.approx(one / 3600 * 32 * 2.0)
    assert report.per_thousand == pytest.approx(one / 3600 * 32 * 2.0 * 1000)
    assert kpis["idle_share"] == pytest.approx(sum(report.idle.values()))
    assert sum(report.busy.values()) + sum(report.idle.values()) == pytest.approx(1)
    for key, span in report.intervals.items():
        value = kpis[key]
        assert value is not None
        assert span is None or span[0] < value < span[1]
    assert report.intervals["iteration_seconds"]


@pytest.mark.parametrize(
    ("sets", "code"),
    [
        (("rl.iteration.mode=disaggregated",), "TW187"),
        (("rl.iteration.mode=disaggregated", "rl.iteration.rollout_nodes=4"), "TW187"),
        ((*APART, "rl.rollout.nodes=2"), "TW187"),
        (("rl.iteration.update.replica={gpus: 16}",), "TW188"),
        (("rl.rollout.engine.precision=bf16",), "TW188"),
        (("train.sequence=4096tok",), "TW189"),
        (("rl.iteration.update.free_memory=1MiB",), "TW156"),
    ],
)
def test_iterations_that_cannot_be_say_why(sets: tuple[str, ...], code: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        played(*sets)
    assert caught.value.problems[0].code == code


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("rl.iteration.rollout_nodes=2", "TW186"),
        ("rl.iteration.update.event=start", "TW186"),
        ("expect=[iterations_per_day > 3s]", "TW052"),
        ("expect=[idle_share > 3s]", "TW052"),
    ],
)
def test_what_no_iteration_can_be_is_a_mistake(wrong: str, code: str) -> None:
    with pytest.raises(ScenarioError, match=code):
        load(NAME, [*SMALL, wrong])


def test_a_figure_of_an_iteration_needs_one() -> None:
    with pytest.raises(ScenarioError, match="TW053"):
        load("kimi-k2-256xh800", ["expect=[idle_share < 0.5]"])


def test_engines_that_go_to_sleep_take_that_much_longer_and_only_where_they_do() -> None:
    before, after = played().rounds[0], played("rl.iteration.sleep=3s").rounds[0]
    assert after.length_ns - before.length_ns == after.parts_ns["sleep"] == 3 * 10**9
    gpus = planned().gpus
    assert after.idle_ns["switch"] - before.idle_ns["switch"] == gpus * 3 * 10**9
    assert seconds(*APART, "rl.iteration.sleep=3s") == seconds(*APART)


def test_states_that_stay_move_nothing_and_take_room_from_caches() -> None:
    moved, stayed = planned(), planned("rl.iteration.offload=false")
    own = max(states_of(stage) for stage in stayed.trainer.memory.stages)
    assert moved.room.cache - stayed.room.cache == pytest.approx(own)
    update = {one.name: one.bytes for one in stayed.fits}["weight update"]
    assert update - {one.name: one.bytes for one in moved.fits}["weight update"] == own
    parts = played("rl.iteration.offload=false").rounds[0].parts_ns
    assert parts["load"] == parts["unload"] == 0


def test_padded_and_packed_are_the_same_where_sequences_are() -> None:
    """Four of them fill a micro-batch either way."""
    alike = "parallel.micro_batch=4", "train.sequence=2048tok", ALIKE
    packed, padded = (
        played(*alike, f"rl.iteration.batching={kind}").rounds[0] for kind in ("packed", "padded")
    )
    assert padded.parts_ns["train"] == packed.parts_ns["train"]


def test_an_update_of_adapters_says_that_it_sends_all_weights() -> None:
    codes = {one.code for one in planned("train.lora={rank: 8}").warnings}
    assert "adapters-sent-whole" in codes
    assert "adapters-sent-whole" not in {one.code for one in planned().warnings}
