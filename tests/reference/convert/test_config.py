"""Every field of the model reaches `config.json` and comes back; what has no field is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reference.convert.config import config_of, model_of
from tests.reference.model.peers import GROUPED, LATENT, changed, transformers, yarn
from twin.errors import UsageError
from twin.loading import load_part
from twin.spec.model import ModelSpec

CONFIGS = Path(__file__).parents[2] / "interop" / "importing" / "configs"
CHANGES: dict[str, Any] = {
    "layers": 5,
    "hidden": 48,
    "vocab": 99,
    "norm_eps": 3e-5,
    "tied_embeddings": True,
    "ffn__width": 72,
    "attention__heads": 5,
    "attention__q_lora_rank": None,
    "attention__kv_lora_rank": 16,
    "attention__qk_nope_head_dim": 14,
    "attention__qk_rope_head_dim": 10,
    "attention__v_head_dim": 7,
    "moe__experts": 16,
    "moe__top_k": 2,
    "moe__width": 20,
    "moe__shared_experts": 3,
    "moe__first_dense_layers": 2,
    "moe__normalize_weights": False,
    "moe__routed_scale": 1.5,
    "rope": {"theta": 1234.5},
}
YARNS = {
    "factor": yarn(16, 64),
    "context": yarn(32, 128),
    "fast": yarn(32, 64, beta_fast=8),
    "slow": yarn(32, 64, beta_slow=2),
    "cosines": yarn(32, 64, mscale=0.7),
    "logits": yarn(32, 64, mscale_all_dim=0.7),
}


def through(spec: ModelSpec) -> ModelSpec:
    return model_of(json.loads(json.dumps(config_of(spec, {}))), spec.name).model


@pytest.mark.parametrize("path", CHANGES)
def test_every_field_comes_back(path: str) -> None:
    spec = changed(LATENT, **{path: CHANGES[path]})
    assert spec != changed(LATENT)
    assert through(spec) == spec


@pytest.mark.parametrize("name", YARNS)
def test_every_number_of_yarn_comes_back(name: str) -> None:
    spec = changed(
        LATENT, rope={"theta": 50_000, "yarn": YARNS[name]}, moe__groups=4, moe__top_groups=2
    )
    assert through(spec) == spec
    assert through(changed(GROUPED, rope=spec.rope.model_dump(mode="json"))).rope == spec.rope


@pytest.mark.parametrize(
    "name", ["kimi-k2", "kimi-k2-nano", "kimi-k2-tiny", "kimi-k2-small", "moonlight-16b-a3b"]
)
def test_catalog_models_come_back(name: str) -> None:
    spec = load_part("models", name).spec
    assert through(spec) == spec


@pytest.mark.parametrize("name", ["kimi-k2", "moonlight-16b-a3b", "deepseek-v3", "qwen3-4b"])
def test_released_configurations_are_the_catalog_s_models(name: str) -> None:
    found = model_of(json.loads((CONFIGS / f"{name}.json").read_text()), name)
    spec = load_part("models", name).spec
    assert found.prediction_layers == spec.mtp_layers
    assert found.model == spec.model_copy(update={"mtp_layers": 0})


def test_transformers_reads_the_same_numbers(tmp_path: Path) -> None:
    spec = load_part("models", "kimi-k2").spec
    (tmp_path / "config.json").write_text(json.dumps(config_of(spec, {})))
    config = transformers().AutoConfig.from_pretrained(tmp_path)
    assert config.max_position_embeddings == 131_072
    assert config.rope_parameters["rope_theta"] == 50_000
    assert config.rope_parameters["rope_type"] == "yarn"
    assert config.rope_parameters["factor"] == 32
    assert config.routed_scaling_factor == 2.827
    config.save_pretrained(tmp_path)
    again = json.loads((tmp_path / "config.json").read_text())
    assert model_of(again, spec.name).model == spec


def test_yarn_without_mscales_leaves_the_logits_as_they_are() -> None:
    """transformers multiplies the softmax scale only where `mscale_all_dim` is there."""
    scaling = {"type": "yarn", "factor": 32, "original_max_position_embeddings": 64}
    found = model_of({**BASE, "rope_scaling": scaling}, "m").model.rope.yarn
    assert found is not None
    assert (found.mscale, found.mscale_all_dim) == (1.0, 0.0)
    assert (found.beta_fast, found.beta_slow) == (32.0, 1.0)


BASE = config_of(changed(LATENT, rope={"theta": 1e4, "yarn": yarn(32, 64)}), {})
SCALING: dict[str, Any] = BASE["rope_scaling"]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another family": ({"model_type": "mixtral"}, "TW251 the architecture `mixtral` is none"),
    "a slip": ({"model_type": "kimi-k2"}, "did you mean `kimi_k2`?"),
    "no family": ({"model_type": None}, "TW251 the architecture `None`"),
    "another class": ({"architectures": ["KimiLinearForCausalLM"]}, "KimiLinearForCausalLM"),
    "a missing key": ({"kv_lora_rank": None}, "TW252 the configuration has no `kv_lora_rank`"),
    "softmax": ({"scoring_func": "softmax"}, "`scoring_func: softmax` is not computed here"),
    "greedy": ({"topk_method": "greedy"}, "`topk_method: greedy`"),
    "halves": ({"rope_interleave": False}, "`rope_interleave: False`"),
    "biases": ({"attention_bias": True}, "`attention_bias: True`"),
    "fewer keys": ({"num_key_value_heads": 1}, "as many as `num_attention_heads`"),
    "an unknown key": ({"final_logit_softcapping": 30}, "what `final_logit_softcapping` changes"),
    "a misspelt key": ({"attention_bais": True}, "did you mean `attention_bias`?"),
    "llama3": ({"rope_scaling": {**SCALING, "type": "llama3"}}, "stretched by `llama3`"),
    "YaRN's own": ({"rope_scaling": {**SCALING, "truncate": False}}, "YaRN's `truncate`"),
    "no context": (
        {"rope_scaling": {"type": "yarn", "factor": 2}},
        "original_context",
    ),
    "one mscale": (
        {"rope_scaling": {k: v for k, v in SCALING.items() if k != "mscale"}},
        "of `mscale` and `mscale_all_dim` one alone has no one meaning",
    ),
    "too few groups": ({"topk_group": 9}, "`topk_group` = 9"),
    "no number": ({"hidden_size": "7168"}, "`hidden_size` = '7168'"),
    "no theta": ({"rope_theta": None}, "the configuration has no `rope_theta`"),
}


@pytest.mark.parametrize(("keys", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_computed_is_refused_by_name(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        model_of({**BASE, **keys}, "m")
    assert said in str(caught.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        model_of({**BASE, "scoring_func": "softmax", "vocab_size": None, "odd": 1}, "m")
    assert [problem.code for problem in caught.value.problems] == ["TW252"] * 3


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (changed(LATENT, moe=None), "`moe`"),
        (changed(LATENT, moe__scores="softmax"), "`moe.scores`"),
        (changed(LATENT, moe__correction_bias=False), "`moe.correction_bias`"),
        (changed(LATENT, moe__every=2), "`moe.every`"),
        (changed(LATENT, mtp_layers=1), "`mtp_layers`"),
        (changed(GROUPED, rotary=False), "`rotary`"),
        (changed(GROUPED, moe={"experts": 4, "top_k": 1, "width": 8}), "other `moe`"),
    ],
)
def test_a_model_that_no_class_computes_is_refused_by_field(spec: ModelSpec, field: str) -> None:
    with pytest.raises(UsageError, match="TW257") as caught:
        config_of(spec, {})
    assert field in str(caught.value)
