"""Families whose class in transformers says how many parameters a configuration has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from twin.arch.count import parameters
from twin.cli.main import main
from twin.interop.importing.hf_config import read_hf_config

CONFIGS = Path(__file__).with_name("configs")
_LACKING: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "hunyuan_v1_dense": {"head_dim": 128},
    "lfm2": {"full_attn_idxs": [2, 5, 30]},
    "lfm2_moe": {"layer_types": [*["conv"] * 31, "full_attention"]},
    "nemotron": {"num_key_value_heads": 8},
}
CLASSES = (
    *("afmoe", "arcee", "exaone4", "exaone_moe", "flex_olmo", "gemma", "glm", "glm4_moe_lite"),
    *(
        "granite",
        "granitemoe",
        "granitemoehybrid",
        "bamba",
        "helium",
        "hunyuan_v1_dense",
        "hy_v3",
        "lfm2",
        "lfm2_moe",
        "mellum",
        "minimax",
    ),
    *("ministral3", "nemotron", "olmoe", "phimoe", "qwen3_5_moe_text", "qwen3_5_text"),
    *("sarvam_mla", "sarvam_moe", "smollm3", "solar_open", "stablelm", "starcoder2", "youtu"),
    # Shown by a released configuration, too, which an older transformers wrote.
    *("deepseek_v32", "glm_moe_dsa", "kimi_linear", "gpt_oss"),
)
"""Families whose class in transformers is asked, and above what default configurations lack."""


@pytest.mark.parametrize("family", CLASSES)
def test_a_family_has_the_parameters_of_its_class_in_transformers(family: str, tmp_path: Path):
    """Of the class's own configuration, built without memory; and the corrections of routers, which
    are buffers there."""
    common = PreTrainedConfig().to_dict()
    own = AutoConfig.for_model(family, **_LACKING.get(family, {}))
    said = json.loads(own.to_json_string(use_diff=False))
    keys = {k: v for k, v in said.items() if k == "tie_word_embeddings" or v != common.get(k)}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(keys))
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(own)
    named = built.named_buffers()
    buffers = sum(one.numel() for name, one in named if "correction" in name or "bias" in name)
    expected = sum(one.numel() for one in built.parameters()) + buffers
    assert parameters(read_hf_config(path, family).model).total == expected


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        *(("llama-3.3-nemotron-super-49b", "block_configs", one) for one in (1, "x", [1], [None])),
        ("llama-3.3-nemotron-super-49b", "block_configs", [{"ffn": {"ffn_mult": 1e400}}] * 80),
        ("glm-4-9b-0414", "num_hidden_layers", 10**9),
        ("glm-4-9b-0414", "num_hidden_layers", 10**30),
        ("glm-4-9b-0414", "hidden_size", 10**30),
    ],
)
def test_a_value_that_no_model_has_is_refused(
    config: str, key: str, value: object, tmp_path: Path
) -> None:
    document = json.loads((CONFIGS / f"{config}.json").read_text(encoding="utf-8"))
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**document, key: value}), encoding="utf-8")
    assert main(["import", str(file)]) in (2, 3)
