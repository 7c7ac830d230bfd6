"""Engines that serve hybrids: states beside caches, windows, sparse attention."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from twin.arch.ops import Item, Op
from twin.inference.engine import Engine, engine
from twin.inference.kv_capacity import room
from twin.inference.seconds import INDEXED, decode_items, decode_pass, prefill_items, prefill_pass
from twin.loading import load_part
from twin.spec.cluster import ClusterSpec
from twin.spec.inference import EngineSpec
from twin.spec.model import ModelSpec


def serving(name: str, gpus: int = 8, tensor: int = 1, **changes: object) -> Engine:
    node, fabric = (
        load_part("nodes", "h800-8gpu").spec,
        load_part("fabrics", "rail-fat-tree-400g").spec,
    )
    cluster = ClusterSpec(node=node, nodes=max(1, gpus // 8), fabric=fabric)
    profile = load_part("calibrations", "h800-hopper-bf16").spec
    model: ModelSpec = load_part("models", name).spec.model_copy(update=changes)
    return engine(EngineSpec(gpus=gpus, tensor=tensor), model, cluster, profile)


KIMI = serving("kimi-linear-48b-a3b")


def op(items: Iterable[Item], name: str) -> Op:
    return next(one for one in items if isinstance(one, Op) and one.name == name)


def test_linear_layers_take_as_long_at_any_context() -> None:
    near, far = (decode_items(KIMI, 32, tokens) for tokens in (4096.0, 131_072.0))
    assert near["kda+moe"] == far["kda+moe"]
    assert near["moe"] != far["moe"]
    names = [item.name for item in near["kda+moe"]]
    assert "mixer_step" in names
    assert not {"mixer_core", "mixer_conv", "mixer_gates"} & set(names)


def test_a_step_reads_and_writes_each_state_once() -> None:
    """32 sequences of 32 heads of 128 x 128 in fp32, and 3 x 3 tokens of 4,096 in bf16."""
    step = op(decode_items(KIMI, 32, 9.0)["kda+moe"], "mixer_step")
    state = 4 * 32 * 128 * 128 + 2 * 3 * 3 * 4096
    assert step.forward.bytes == 2 * 32 * state


def test_states_cost_each_sequence_the_same_and_tokens_only_latents() -> None:
    """7 layers of 576 numbers in bf16 per token, 20 states per sequence."""
    own = room(KIMI)
    state = 4 * 32 * 128 * 128 + 2 * 3 * 3 * 4096
    assert (own.per_token, own.per_sequence) == (7 * 576 * 2, 20 * state)
    assert own.slots(0) == int(own.cache / own.per_sequence)
    assert own.slots(100_000) == int(own.cache / (own.per_sequence + 100_000 * own.per_token))
    assert own.to_json()["bytes_per_sequence"] == own.per_sequence
    assert "bytes_per_sequence" not in room(serving("qwen3-30b-a3b")).to_json()


def test_a_model_without_any_attention_holds_as_many_tokens_as_one_likes() -> None:
    alone = serving("kimi-linear-48b-a3b", pattern=("kda+moe",))
    assert room(alone).per_token == 0
    assert room(alone).slots(10**6) == room(alone).slots(10)
    assert room(alone).tokens == 10**9


def test_windows_keep_and_read_no_more_than_a_window() -> None:
    """gpt-oss: every second of 36 layers has a window of 128."""
    own = serving("gpt-oss-120b")
    assert room(own).per_token == 18 * 8 * 2 * 64 * 2
    assert room(own).per_sequence == 18 * 128 * 8 * 2 * 64 * 2
    core = op(decode_items(own, 1, 8192.0)["moe"], "attention_cached")
    read = (8192 + 128) / 2
    assert core.forward.flop == 2 * read * 64 * 2 * 64


def test_sparse_attention_reads_its_chosen_tokens_and_scores_all() -> None:
    own = serving("deepseek-v3.2", gpus=32)
    near, far = (decode_items(own, 4, tokens)["moe"] for tokens in (8192.0, 65_536.0))
    cores = [op(items, "attention_cached") for items in (near, far)]
    assert cores[0] == cores[1]
    flop = [op(items, INDEXED).forward.flop for items in (near, far)]
    assert flop == [2 * 4 * tokens * 64 * 128 for tokens in (8192, 65_536)]
    assert room(own).per_token == 61 * (576 * 2 + 132)


@pytest.mark.parametrize(
    "name", ["kimi-linear-48b-a3b", "qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b"]
)
def test_hybrids_decode_faster_at_long_contexts_than_the_same_with_attention(name: str) -> None:
    model = load_part("models", name).spec
    assert model.mixer is not None
    full = tuple(one.replace(model.mixer.kind, "attention") for one in model.pattern)
    hybrid, other = serving(name), serving(name, pattern=full)
    for own in (hybrid, other):
        assert prefill_pass(own, 1, 4096).seconds > decode_pass(own, 1, 4096.0).seconds
    long = [decode_pass(own, 16, 200_000.0).seconds for own in (hybrid, other)]
    assert long[0] < 0.7 * long[1]


def test_a_prompt_behind_a_cached_one_reads_it_where_attention_is() -> None:
    fresh, more = (prefill_items(KIMI, 1, 1024, cached) for cached in (0, 8192))
    assert fresh["kda+moe"] == more["kda+moe"]
    names = [item.name for item in more["moe"]]
    assert "kv_up_cached" in names
