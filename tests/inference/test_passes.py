"""What a pass takes: against closed forms where one thing binds, and laws over sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inference.engines import made
from twin.arch.inference import cache_bytes, decode_flop, prefill_flop
from twin.arch.ops import Op
from twin.arch.stack import kinds
from twin.errors import ScenarioError
from twin.inference.engine import Engine, engine
from twin.inference.kv_capacity import cached_bytes, room
from twin.inference.seconds import decode_items, decode_pass, prefill_items, prefill_pass
from twin.loading import load, load_part
from twin.spec.inference import EngineSpec

SMALL = st.integers(1, 400)


def flop(server: Engine, items: dict) -> float:
    """FLOP of one GPU in all layers."""
    own = {
        kind: sum(item.forward.flop for item in row if isinstance(item, Op))
        for kind, row in items.items()
    }
    return sum(own[kind] for kind in kinds(server.model))


@pytest.mark.parametrize("model", ["kimi-k2", "deepseek-v3-no-mtp", "qwen3-32b", "llama3-70b"])
def test_a_decode_step_does_the_flop_that_the_architecture_counts(model: str) -> None:
    """Counted apart: 2 per weight that a token uses, and attention to all that is cached."""
    server = made(model, gpus=1 if "moe" not in model else 32, two_batches=False)
    spec = load_part("models", model).spec
    if spec.moe is not None:
        server = made(model, gpus=32, two_batches=False)
    got = flop(server, decode_items(server, 64, 4096.0)) / 64
    assert got == pytest.approx(decode_flop(spec, 4096), rel=2e-3)


def test_a_prefill_does_the_flop_that_the_architecture_counts() -> None:
    server = made("kimi-k2")
    got = flop(server, prefill_items(server, 4, 4096, 0)) / 4
    assert got == pytest.approx(prefill_flop(load_part("models", "kimi-k2").spec, 4096), rel=2e-3)


def test_a_prompt_in_two_pieces_does_the_attention_of_one() -> None:
    """The second half sees the first one's cache; what is more are its keys, made whole again."""
    server = made("kimi-k2")
    whole = flop(server, prefill_items(server, 1, 8192, 0))
    first = flop(server, prefill_items(server, 1, 4096, 0))
    items = prefill_items(server, 1, 4096, 4096)
    again = sum(
        item.forward.flop
        for kind in kinds(server.model)
        for item in items[kind]
        if item.name == "kv_up_cached" and isinstance(item, Op)
    )
    heads = 2.0 * 7168 * 163_840  # the projection of a last token, twice
    assert first + flop(server, items) - again == pytest.approx(whole + heads, rel=1e-9)
    assert again == pytest.approx(61 * 2 * 4096 * 512 * 64 * 256)


def test_the_cache_of_a_latent_is_576_values_per_token_and_layer() -> None:
    server, spec = made("kimi-k2"), load_part("models", "kimi-k2").spec
    assert cached_bytes(server) == 2 * 576 * 61 == cache_bytes(spec, 1)
    assert cached_bytes(made("kimi-k2", tensor=8)) == 2 * 576 * 61  # each rank has it whole
    assert cached_bytes(made("llama3-70b", tensor=8)) == 2 * 2 * 128 * 80  # one pair of heads
    assert cached_bytes(made("kimi-k2", cache="fp8")) == pytest.approx(1.03125 * 576 * 61)


def test_the_weights_of_kimi_k2_in_fp8_are_those_of_its_checkpoint() -> None:
    """1.03 TB on 16 GPUs, what is outside of experts on each: 11.7e9 weights, 2.35e9 in BF16."""
    found = room(made("kimi-k2", node="h200-8gpu", gpus=16))
    experts, others = 1_014_686_023_680 / 16, 11_722_208_768
    assert found.weights == pytest.approx(experts + others + 2_350_000_000, rel=0.002)
    bf16 = room(made("kimi-k2", node="h200-8gpu", gpus=32, precision="bf16"))
    assert bf16.weights == pytest.approx(2 * (1_014_686_023_680 / 32 + others), rel=1e-6)


def test_room_is_for_whole_sequences_only() -> None:
    found = room(made("kimi-k2"))
    assert found.slots(1000) == found.tokens // 1000
    assert found.slots(10 * found.tokens) == 0
    assert room(made("kimi-k2", gpus=16)).slots(8192) == 0  # 78 GB of weights


def test_an_engine_with_a_share_of_its_devices_has_that_less_weights_and_a_pass() -> None:
    whole, share = (room(made("kimi-k2", node="h200-8gpu", memory=one)) for one in (1.0, 0.8))
    assert share.cache == pytest.approx(0.8 * share.capacity - share.weights - share.passes)
    nearly = room(made("kimi-k2", node="h200-8gpu", memory=0.999))
    assert nearly == whole  # the device itself keeps more than the rest


def test_a_long_context_is_bound_by_the_cache_that_is_read() -> None:
    """One million tokens of cache at 0.85 of 3.35 TB/s."""
    step = decode_pass(made("kimi-k2"), 8, 125_000.0)
    read = 8 * 125_000 * 576 * 2 * 61 / (0.85 * 3.35e12)
    assert step.bound == "memory"
    longer = decode_pass(made("kimi-k2"), 8, 250_000.0)
    assert longer.causes["memory"] - step.causes["memory"] == pytest.approx(read, rel=1e-3)


def test_few_tokens_read_few_experts() -> None:
    """One token of 8 experts on 1 GPU of 32 touches at most what it chose."""

    def experts(batch: int) -> float:
        server = made("kimi-k2", two_batches=False)
        items = decode_items(server, batch, 100.0)["moe"]
        return next(i.forward.bytes for i in items if i.name == "experts_up" and isinstance(i, Op))

    # 32 tokens in all: 12 (1 - (1 - 8/384)^32) = 5.9 of 12.
    assert experts(1) == pytest.approx(experts(256) / 2, rel=0.1)
    assert experts(1) < experts(4) < experts(32)
    assert experts(512) == pytest.approx(experts(256), rel=0.15)  # all 12 are read by then


def test_two_halves_hide_the_all_to_all_and_read_the_weights_twice() -> None:
    turns, line = (
        decode_pass(made("kimi-k2", two_batches=two), 256, 2000.0) for two in (True, False)
    )
    assert turns.hidden > 0 == line.hidden
    assert turns.causes["expert"] < line.causes["expert"]
    assert turns.causes["launches"] == pytest.approx(2 * line.causes["launches"])


@given(SMALL, st.integers(1, 50_000), st.booleans())
def test_more_sequences_and_longer_ones_take_longer(batch: int, cached: int, two: bool) -> None:
    server = made("kimi-k2", two_batches=two)
    step = decode_pass(server, batch, float(cached)).seconds
    assert decode_pass(server, batch, float(cached + 1000)).seconds >= step
    assert decode_pass(server, 2 * batch, float(cached)).seconds >= step


def test_a_larger_batch_gives_more_tokens_per_second() -> None:
    server = made("kimi-k2")
    rates = [batch / decode_pass(server, batch, 1000.0).seconds for batch in (1, 8, 64, 512)]
    assert rates == sorted(rates)


def test_cached_tokens_are_cheaper_than_new_ones() -> None:
    server = made("kimi-k2")
    short = prefill_pass(server, 1, 1000).seconds
    kept, whole = prefill_pass(server, 1, 1000, 9000).seconds, prefill_pass(server, 1, 10_000)
    assert short < kept < whole.seconds


def test_causes_sum_to_the_seconds_of_a_pass() -> None:
    one = decode_pass(made("kimi-k2", step_overhead="1ms"), 64, 4000.0)
    assert one.seconds == pytest.approx(sum(one.causes.values()))
    assert one.causes["host"] == 0.001


@pytest.mark.parametrize(
    ("spec", "path", "fix"),
    [
        ({"gpus": 512}, "data.engine.gpus", "at most 256"),
        ({"gpus": 12}, "data.engine.gpus", "write 8"),
        ({"gpus": 40}, "data.engine.gpus", "redundant_experts"),
        ({"gpus": 32, "tensor": 3}, "data.engine.tensor", "divides"),
    ],
)
def test_an_engine_that_cannot_be_says_why(spec: dict, path: str, fix: str) -> None:
    good = made("kimi-k2")
    with pytest.raises(ScenarioError) as caught:
        engine(
            EngineSpec.model_validate(spec),
            load_part("models", "kimi-k2").spec,
            good.cluster,
            good.calibration,
            "data.engine",
        )
    first = caught.value.problems[0]
    assert (first.code, first.path) == ("TW180", path)
    assert fix in first.hint


@pytest.mark.parametrize("two", [False, True])
def test_the_host_takes_its_part_of_each_sequence_of_a_pass(two: bool) -> None:
    own = {"step_overhead": "1ms", "sequence_overhead": "100us"}
    light, heavy = (made(redundant_experts=32, two_batches=two, **host) for host in ({}, own))
    for batch in (1, 7, 64):
        more = decode_pass(heavy, batch, 1000.0).seconds - decode_pass(light, batch, 1000.0).seconds
        assert more == pytest.approx(0.001 + 0.0001 * batch)
    more = prefill_pass(heavy, 3, 500).seconds - prefill_pass(light, 3, 500).seconds
    assert more == pytest.approx(0.001 + 0.0003)


def test_an_engine_may_have_a_profile_of_its_own(tmp_path: Path) -> None:
    """By its own part or by the scenario's word, and training keeps its own."""
    slow = load_part("calibrations", "h20-hopper-bf16").spec
    own = made(redundant_experts=32, calibration=slow.model_dump(mode="json"))
    assert own.calibration == slow
    assert made(redundant_experts=32).calibration != slow
    engines = tmp_path / "catalog" / "engines"
    engines.mkdir(parents=True)
    part = "source: twin\nkind: assumed\nname: mine\ngpus: 32\ncalibration: h20-hopper-bf16\n"
    (engines / "mine.yaml").write_text(part)
    assert load_part("engines", "mine", [tmp_path]).spec.calibration == slow
    word = "rl.rollout.engine.calibration=h20-hopper-bf16"
    scenario = load("kimi-k2-rl-256xh800", [word])
    assert scenario.rl is not None
    assert scenario.rl.rollout.engine.calibration == slow
    assert scenario.calibration != slow


def test_low_latency_kernels_do_not_serve_peers_one_by_one() -> None:
    """What NCCL's all-to-all takes per peer is none of a decode step's."""
    one = made("kimi-k2")
    nic = one.cluster.node.nic.model_copy(update={"exchange_start": 1e-3, "exchange_peer": 1e-4})
    node = one.cluster.node.model_copy(update={"nic": nic})
    cluster = one.cluster.model_copy(update={"node": node})
    slow = Engine(one.spec, one.model, cluster, one.calibration)
    assert decode_pass(slow, 64, 4096.0).seconds == decode_pass(one, 64, 4096.0).seconds
