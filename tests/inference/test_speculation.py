"""Drafted tokens, experts' weights in four bits, and caches that move: by hand, and as laws."""

from __future__ import annotations

import pytest

from tests.inference.engines import made
from twin.arch.inference import cache_bytes
from twin.arch.ops import Op
from twin.inference.curve import cache_moves, curve
from twin.inference.engine import Engine
from twin.inference.kv_capacity import cached_bytes, room
from twin.inference.seconds import CACHED, DRAFT, decode_items, decode_pass, prefill_pass
from twin.loading import load_part
from twin.spec.inference import SpeculationSpec

ONE = {"drafts": 1, "accepted": 0.85}


def seconds(server: Engine, batch: int = 16) -> float:
    return decode_pass(server, batch, 4096.0).seconds


def cached(server: Engine, kind: str) -> Op:
    items = decode_items(server, 16, 4096.0)[kind]
    return next(one for one in items if isinstance(one, Op) and one.name == CACHED)


@pytest.mark.parametrize(("drafts", "accepted"), [(1, 0.85), (3, 0.5), (2, 1.0)])
def test_tokens_of_a_pass_are_those_of_all_outcomes(drafts: int, accepted: float) -> None:
    """Outcome by outcome: n drafts are right and the next is wrong, or all are right."""
    found = sum(
        accepted**n * (1 - accepted if n < drafts else 1) * (n + 1) for n in range(drafts + 1)
    )
    spec = SpeculationSpec(drafts=drafts, accepted=accepted)
    assert spec.emitted == pytest.approx(found)


def test_a_pass_verifies_all_drafts_and_reads_the_cache_once() -> None:
    kind = "mla+moe" if "mla+moe" in decode_items(made(), 16, 4096.0) else "moe"
    one, two = cached(made(), kind), cached(made(speculation={**ONE, "drafts": 3}), kind)
    assert two.forward.flop == pytest.approx(4 * one.forward.flop)
    read = 16 * 4096 * 2 * 576
    assert two.forward.bytes - read == pytest.approx(4 * (one.forward.bytes - read))


@pytest.mark.parametrize("model", ["deepseek-v3", "kimi-k2", "qwen3-32b"])
def test_few_users_get_almost_as_many_more_tokens_as_are_right(model: str) -> None:
    """DeepSeek-V3's report, section 5.4.3: 85 to 90 % accepted, 1.8 times the tokens per second."""
    gpus = 1 if model == "qwen3-32b" else 32
    plain = made(model, gpus=gpus)
    drafting = made(model, gpus=gpus, speculation={**ONE, "accepted": 0.9})
    assert 1.5 < seconds(plain, 4) / seconds(drafting, 4) < 1.9


def test_drafts_that_are_all_wrong_cost_and_give_nothing() -> None:
    wrong = made(speculation={"drafts": 1, "accepted": 0.001})
    assert seconds(wrong) > seconds(made())
    assert seconds(made(speculation={"drafts": 4, "accepted": 0.3})) > seconds(
        made(speculation={"drafts": 1, "accepted": 0.3})
    )


def test_many_users_gain_less() -> None:
    gains = [seconds(made(), n) / seconds(made(speculation=ONE), n) for n in (64, 256, 1024)]
    assert gains[0] > gains[1] > gains[2]


def test_the_layer_that_drafts_is_in_memory_and_has_a_cache() -> None:
    plain, drafting = room(made()), room(made(speculation=ONE))
    layers = made().model.layers
    assert drafting.per_token == pytest.approx(plain.per_token * (layers + 1) / layers)
    assert 1 < drafting.weights / plain.weights < 1.05


def test_a_pass_drafts_as_often_as_it_verifies() -> None:
    items = decode_items(made(speculation={**ONE, "drafts": 2}), 8, 4096.0)
    names = [one.name for one in items[DRAFT]]
    assert names[0] == "draft_projection"
    assert "head" in names
    assert DRAFT not in decode_items(made(), 8, 4096.0)


def test_prompts_are_not_drafted() -> None:
    plain, drafting = made(), made(speculation=ONE)
    assert prefill_pass(plain, 1, 2048).seconds == prefill_pass(drafting, 1, 2048).seconds


@pytest.mark.parametrize(("precision", "bytes_of"), [("bf16", 2.0), ("fp8", 1 + 4 / 128**2)])
def test_experts_in_four_bits_need_a_quarter_of_bf16(precision: str, bytes_of: float) -> None:
    """By hand: Kimi K2's 60 layers of 384 experts on 32 GPUs, 44 million weights each, of which
    each has four bits and a part of a 16-bit scale of 32."""
    plain, thin = (made(precision=precision, **more) for more in ({}, {"expert_weights": "int4"}))
    experts = 60 * 384 / 32 * 3 * 7168 * 2048
    saved = room(plain).weights - room(thin).weights
    assert saved == pytest.approx(experts * (bytes_of - 0.5625), rel=0.03)
    assert seconds(thin) < seconds(plain)


def test_a_cache_moves_over_the_nics_of_its_group() -> None:
    """Latents of 61 layers of 576 numbers, 70 kB a token, over the NIC of one rank."""
    model = load_part("models", "kimi-k2").spec
    whole = cache_bytes(model, 8192)
    assert whole == pytest.approx(61 * 576 * 2 * 8192)
    assert cache_moves(made(), 8192) == pytest.approx(whole / (50e9 * 0.95 * 0.95), rel=0.01)
    half = cache_moves(made(tensor=8), 8192)
    assert half == pytest.approx(cache_moves(made(), 8192) / 8, rel=0.05)
    grouped = made("qwen3-32b", gpus=8, tensor=8)
    own = cached_bytes(grouped) * 8192
    assert cache_moves(grouped, 8192) == pytest.approx(own / (50e9 * 0.95 * 0.95), rel=0.01)


def test_the_parts_of_a_drafting_step_sum_to_it() -> None:
    at = curve(made(speculation=ONE), contexts=(4096,)).contexts[0]
    for one in at.points:
        assert sum(one.parts.values()) == pytest.approx(one.step, rel=1e-6)
        assert one.light < one.step
