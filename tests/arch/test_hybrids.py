"""Layers of several kinds in one model: full attention, windows, another mixer, single blocks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arch.models import NAMES, TINY_SHARED, catalog
from twin.arch.attention import Heads
from twin.arch.blocks.kda import Kda
from twin.arch.count import flop_per_token, matrix_weights, parameters
from twin.arch.inference import cache_bytes, decode_flop
from twin.arch.ops import Exchange, Op, Shape
from twin.arch.stack import kinds, layers, uneven
from twin.spec.axis import members
from twin.spec.mixer import Mixer
from twin.spec.model import GroupedAttention, ModelSpec, Moe

MODEL = ModelSpec(
    name="hybrid",
    layers=7,
    hidden=32,
    vocab=96,
    attention=GroupedAttention(kind="gqa", heads=4, kv_heads=4, head_dim=8, window=16),
    ffn=TINY_SHARED.ffn,
    moe=Moe(experts=8, top_k=2, width=20),
    mixer=Kda(kind="kda", num_heads=4, head_dim=8),
    pattern=("kda+dense", "window+moe", "attention", "moe"),
)
SHAPE = Shape(1, 128)


def test_sorts_of_layers_are_one_object_each_and_weigh_what_their_blocks_do() -> None:
    stack = layers(MODEL, SHAPE)
    assert kinds(MODEL)[1:5] == ("kda+dense", "window+moe", "attention", "+moe")
    assert [layer.kind for layer in stack[1:5]] == ["dense", "moe", "mixer", "moe"]
    assert stack[1] is stack[5]
    assert sum(layer.weights.total for layer in stack) == parameters(MODEL).total
    assert [layer.heads for layer in stack[1:5]] == [0, 4, 4, 0]


def test_work_of_all_layers_is_that_of_the_mfu_convention() -> None:
    ops = [item for layer in layers(MODEL, SHAPE) for item in layer.items if isinstance(item, Op)]
    forward = sum(op.forward.flop for op in ops)
    assert forward == pytest.approx(SHAPE.tokens * flop_per_token(MODEL, 128) / 3)


def test_only_windows_have_few_keys() -> None:
    """Pairs of 4 heads of 8: half of 128 squared, and 128 x 16 less half of 16 squared."""
    cores = [
        next(item for item in layer.items if item.name == "attention_flash")
        for layer in layers(MODEL, SHAPE)[2:4]
    ]
    pairs = [op.forward.flop / (4 * 4 * 8) for op in cores if isinstance(op, Op)]
    assert pairs == [128 * 16 - 16**2 / 2, 128**2 / 2]


@given(window=st.integers(1, 70), sequence=st.integers(1, 200))
def test_a_query_has_the_keys_of_its_chunk(window: int, sequence: int) -> None:
    heads = Heads(1, 1, 64, 64, window, 1.0, chunked=True)
    counted = sum(query % window + 0.5 for query in range(sequence))
    assert sequence * heads.keys(sequence) / 2 == pytest.approx(counted)


@given(window=st.integers(1, 90), new=st.integers(1, 60), cached=st.integers(0, 90))
def test_new_tokens_read_what_their_window_leaves_of_the_cache(
    window: int, new: int, cached: int
) -> None:
    heads = Heads(1, 1, 64, 64, window, 1.0)
    counted = sum(max(0, min(cached, window - 0.5 - at)) for at in range(new))
    assert new * heads.earlier(new, cached) == pytest.approx(counted, abs=0.5 * new)
    assert Heads(1, 1, 64, 64).earlier(new, cached) == cached


def test_llama_4_attends_in_chunks_in_three_layers_of_four() -> None:
    model = catalog("llama4-maverick-400b")
    own = model.attention
    assert isinstance(own, GroupedAttention)
    assert (own.window, own.full_every, own.chunked) == (8192, 4, True)
    more = flop_per_token(model, 32_768) - flop_per_token(model, 8192)
    assert more == pytest.approx(3 * 12 * 2 * 40 * 128 * (32_768 - 8192))


def test_a_cache_grows_with_attention_to_all_only() -> None:
    """2 of 7 layers attend to all: 4 heads of 8, twice, in bf16; windows and states stay."""
    more = cache_bytes(MODEL, 4096) - cache_bytes(MODEL, 2048)
    assert more == 2 * 2048 * 4 * 2 * 8 * 2
    state = 4 * 4 * 8 * 8 + 2 * 3 * 3 * 32
    assert cache_bytes(MODEL, 16) == 2 * state + 4 * 16 * 4 * 2 * 8 * 2
    grown = decode_flop(MODEL, 4096) - decode_flop(MODEL, 2048)
    assert grown == 2 * 2048 * 2 * 4 * 16


def test_kimi_linear_keeps_a_quarter_of_the_cache_at_long_contexts() -> None:
    """7 latent layers of 27, which its report calls up to 75 % less."""
    model = catalog("kimi-linear-48b-a3b")
    full = model.model_copy(update={"pattern": (), "mixer": None})
    share = cache_bytes(model, 1_000_000) / cache_bytes(full, 1_000_000)
    assert share == pytest.approx(7 / 27, rel=0.01)


def test_context_ranks_exchange_heads_and_have_to_divide_them() -> None:
    layer = layers(MODEL, Shape(1, 128, context=2))[1]
    sent = [item for item in layer.items if isinstance(item, Exchange)]
    assert [(item.group, item.forward, item.backward) for item in sent] == [
        ("context", "all_to_all", "all_to_all")
    ] * 2
    assert "model.mixer.num_heads" in uneven(MODEL, Shape(1, 128, tensor=4, context=2))
    nano = catalog("nemotron-3-nano-30b-a3b")
    assert not [one for one in uneven(nano, Shape(1, 128, 2, context=16)) if "mixer" in one]
    assert "model.mixer.groups" in uneven(nano, Shape(1, 128, tensor=16))


@pytest.mark.parametrize("kind", members("twin.arch.blocks", Mixer))
def test_every_mixer_has_a_model_in_the_catalog(kind: str) -> None:
    shipped = map(catalog, NAMES)
    own = [model for model in shipped if model.mixer and model.mixer.kind == kind]
    assert own
    for model in own:
        found = Counter(one.kind for one in layers(model, SHAPE))
        assert sum(found.values()) == model.layers + 2 + 2 * model.mtp_layers


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        # Nemotron 3's model cards, in billions.
        ("nemotron-3-nano-30b-a3b", 31.6, 3.6),
        ("nemotron-3-super-120b-a12b", 120.7, 12.8),
        ("nemotron-h-56b", 56.3, 56.3),
    ],
)
def test_nemotrons_have_their_published_billions(name: str, total: float, active: float) -> None:
    count = parameters(catalog(name))
    assert round(count.total / 1e9, 1) == total
    assert round(count.activated_with_embeddings / 1e9, 1) == active


def test_all_moe_of_a_pattern_has_experts_everywhere() -> None:
    every: dict[str, Any] = {"pattern": ("kda+moe", "window+moe", "attention", "moe")}
    assert parameters(MODEL).total_if_all_moe == parameters(MODEL.model_copy(update=every)).total
    assert matrix_weights(MODEL) > 0
