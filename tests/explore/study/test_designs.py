"""Design studies: heads and sparsity of Kimi K2, as scenarios and as FLOP of inference."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reports import made
from twin.answers.nearest import StepAnswers, document, replaced
from twin.arch.count import flop_per_token, matrix_weights, parameters
from twin.arch.inference import (
    cache_bytes,
    context,
    decode_flop,
    prefill_flop,
    with_heads,
)
from twin.loading import load, load_part
from twin.loading.files import shipped_folder
from twin.reports.inference import CONTEXTS, inference, inference_tables, sentence
from twin.reports.kpis import kpis
from twin.scenario import Scenario
from twin.spec.model import ModelSpec

STUDIES = shipped_folder() / "studies"
EQUAL_TOKENS = STUDIES / "kimi-k2-2048xh800-experts.yaml"
EQUAL_LOSS = STUDIES / "kimi-k2-2048xh800-experts-equal-loss.yaml"
HEADS = STUDIES / "kimi-k2-2048xh800-heads.yaml"
FACTORS = {8: 1.69, 16: 1.39, 32: 1.15, 48: 1.0}
"""FLOP for a validation loss of 1.5 over those of sparsity 48: Kimi K2 report, section 2.3."""


def k2() -> ModelSpec:
    return load_part("models", "kimi-k2").spec


def points(file: Any) -> list[tuple[dict[str, Any], Scenario]]:
    """Every point of a study with the scenario that it makes."""
    base = load(file)
    assert base.sweep is not None
    axes = [[(path, value) for value in values] for path, values in base.sweep.grid.items()]
    crossed = [dict(pairs) for pairs in product(*axes)] if axes else []
    plain = document(base)
    wanted = [*crossed, *map(dict, base.sweep.points)]
    return [(one, replaced(plain, one)) for one in wanted]


# FLOP of inference.

PAPER_HEAD = 2 * 100 * 8
"""2 FLOP per weight of 100 words by hidden 8 (`tests.reports.made`)."""


def test_a_small_model_is_the_one_worked_out_on_paper() -> None:
    """Two layers of 768 weights; two heads of 4: 2 x 2 x 8 FLOP per key and layer."""
    model = made.scenario().model
    assert matrix_weights(model) == 2 * 768
    # 16 tokens see 8 keys each on average.
    assert prefill_flop(model, 16) == 16 * (2 * 1536 + 2 * 32 * 8) + PAPER_HEAD
    assert decode_flop(model, 16) == 2 * 1536 + PAPER_HEAD + 2 * 32 * 16
    # Keys and values of two heads of 4 in BF16, in two layers.
    assert cache_bytes(model, 16) == 2 * 16 * 2 * 8 * 2


def test_latent_attention_is_the_one_worked_out_on_paper() -> None:
    """64 heads: a key is the latent of 512 and a rotary part of 64, a value the latent."""
    model = k2()
    per_key = 61 * 2 * 64 * (512 + 64 + 512)
    assert decode_flop(model, 1000) - decode_flop(model, 999) == pytest.approx(per_key)
    whole = 61 * 2 * 64 * (128 + 64 + 128)
    one_more = decode_flop(model, 1000, "whole") - decode_flop(model, 999, "whole")
    assert one_more == pytest.approx(whole)
    assert cache_bytes(model, 1000) == 1000 * 61 * 2 * (512 + 64)


def test_absorbing_changes_the_attention_core_and_nothing_else() -> None:
    """With no key to read, both forms multiply the same weights: `kv_up` moves to the queries and
    outputs."""
    model = k2()
    # Activated with head, less the gains of norms and the routers' biases.
    weights = 31_687_095_808 - 61 * (2 * 7168 + 1536 + 512) - 7168 - 60 * 384
    assert decode_flop(model, 0) == decode_flop(model, 0, "whole") == 2 * weights


@pytest.mark.parametrize("name", ["kimi-k2", "deepseek-v3", "llama3.1-405b", "gpt-22b"])
@given(tokens=st.integers(1, 200_000))
def test_a_prefill_is_a_third_of_training_without_the_heads_of_other_tokens(
    name: str, tokens: int
) -> None:
    model = load_part("models", name).spec
    head = 2 * model.vocab * model.hidden
    trained = tokens * flop_per_token(model, tokens) / 3
    assert prefill_flop(model, tokens) == pytest.approx(trained - (tokens - 1) * head, rel=1e-12)


def test_decoding_a_prompt_token_by_token_is_a_prefill_with_every_key_and_every_head() -> None:
    """Token k sees k keys: S (S + 1) / 2 in all, where a causal prefill counts S^2 / 2."""
    model, tokens = k2(), 300
    steps = sum(decode_flop(model, seen, "whole") for seen in range(1, tokens + 1))
    per_key = 61 * 2 * 64 * (128 + 64 + 128)
    heads = (tokens - 1) * 2 * model.vocab * model.hidden
    assert steps == pytest.approx(prefill_flop(model, tokens) + heads + per_key * tokens / 2)


def test_the_reports_figure_of_128_heads_is_reproduced_by_one_convention() -> None:
    """Kimi K2 report, section 2.3: 83 % more inference FLOP at 128k. The others are beside it."""
    found = inference(k2())
    changes = {one.name: 100 * one.change for one in found.conventions}
    for name, change in changes.items():
        print(f"{name:100} {change:+.1f} %")
    reported, *others = changes.values()
    assert reported == pytest.approx(83, abs=0.5)
    assert others == pytest.approx([86.5, 95.5, 77.5, 76.7], abs=0.1)
    assert all(abs(other - 83) > 2 for other in others)


def test_the_study_is_plain_data() -> None:
    document = inference(k2()).to_json()
    assert json.loads(json.dumps(document)) == document
    assert document["cache_depends_on_heads"] is False
    assert [one["own"]["tokens"] for one in document["contexts"]] == list(CONTEXTS)
    assert len(inference_tables(inference(k2()))) == 2


def test_the_cache_of_latent_attention_does_not_depend_on_heads_and_others_does() -> None:
    latent, grouped = k2(), load_part("models", "gpt-22b").spec
    assert cache_bytes(with_heads(latent, 128), 4096) == cache_bytes(latent, 4096)
    assert all(one.change("cache_bytes") == 0 for one in inference(latent).contexts)
    assert "whatever the number of heads" in sentence(inference(latent))
    # 22B: 64 heads of 96, keys and values of each.
    assert cache_bytes(grouped, 1) == 2 * 48 * 2 * 64 * 96
    assert "for its key and value heads" in sentence(inference(grouped))


def test_longer_contexts_and_more_heads_cost_more() -> None:
    model = k2()
    rows = [context(model, tokens) for tokens in CONTEXTS]
    for key in ("training_flop_per_token", "prefill_flop", "decode_flop_per_token", "cache_bytes"):
        figures = [getattr(row, key) for row in rows]
        assert figures == sorted(set(figures))
    changes = [one.change("decode_flop_per_token") for one in inference(model).contexts]
    assert changes == sorted(changes)
    # What is left of the linear part keeps it below twice.
    assert 0 < changes[0] < changes[-1] < 1


# Studies as scenarios.


def test_sparsity_leaves_active_parameters_as_they_are() -> None:
    """But for the router's own, which grow with the experts."""
    studied = [one for _, one in points(EQUAL_TOKENS)]
    experts = [one.model.moe.experts for one in studied if one.model.moe]
    assert experts == [64, 128, 192, 256, 384]
    counts = [parameters(one.model) for one in studied]
    active = [one.activated_with_head - one.router for one in counts]
    assert len(set(active)) == 1
    sizes = [one.total for one in counts]
    assert sizes == sorted(set(sizes))


def test_equal_loss_takes_the_published_factors_in_tokens() -> None:
    for _, one in points(EQUAL_LOSS):
        assert one.model.moe is not None
        sparsity = one.model.moe.experts // one.model.moe.top_k
        assert one.train.tokens == round(FACTORS[sparsity] * 15_500_000_000_000)
    assert len(points(EQUAL_LOSS)) == len(FACTORS)


def test_heads_are_compared_at_equal_batch_and_run() -> None:
    studied = [one for _, one in points(HEADS)]
    assert {one.train.global_batch for one in studied} == {2**26}
    assert {one.train.tokens for one in studied} == {15_500_000_000_000}
    asked = [(one.model.attention.heads, one.train.sequence) for one in studied]
    assert sorted(asked) == sorted(product((64, 128), (4096, 32_768, 131_072)))
    assert {one.train.sequence // one.parallel.context for one in studied} == {4096}


@cache
def answered(file: Any) -> list[dict[str, float | None]]:
    """The key figures of every point."""
    answers, found = StepAnswers(), list[dict[str, float | None]]()
    for _, one in points(file):
        answer = answers.of(one)
        assert answer.headroom > 0
        found.append(kpis(answer.plan, answer.step_ns, answer.breakdown_ns))
    return found


@pytest.mark.slow
def test_more_experts_cost_more_at_equal_tokens_and_less_at_equal_loss() -> None:
    cost = [one["cost_usd"] for one in answered(EQUAL_TOKENS)]
    memory = [one["peak_device_bytes"] for one in answered(EQUAL_TOKENS)]
    exposed = [one["exposed_communication_seconds"] for one in answered(EQUAL_TOKENS)]
    assert cost == sorted(cost, key=lambda one: one or 0.0)
    assert memory == sorted(memory, key=lambda one: one or 0.0)
    assert exposed == sorted(exposed, key=lambda one: one or 0.0)
    equal = [one["cost_usd"] or 0.0 for one in answered(EQUAL_LOSS)]
    assert equal == sorted(equal, reverse=True)
    # The factor of tokens, less what the larger model costs by the token.
    assert 1.5 < equal[0] / equal[-1] < 1.69


@pytest.mark.slow
def test_twice_the_heads_cost_more_at_every_context() -> None:
    steps = [one["step_seconds"] or 0.0 for one in answered(HEADS)]
    pairs = list(zip(steps[::2], steps[1::2], strict=True))
    assert len(pairs) == 3
    assert all(own < twice for own, twice in pairs)
    assert pairs[-1][1] / pairs[-1][0] > pairs[0][1] / pairs[0][0]
