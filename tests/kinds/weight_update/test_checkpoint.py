"""The tensors of released checkpoints, against counts from their own files."""

from __future__ import annotations

import pytest

from twin.arch.count import parameters
from twin.kinds.weight_update.checkpoint import checkpoint
from twin.loading import load_part

ROTARY = 61
"""Constant buffers that Kimi K2's files hold beside the weights, 112 bytes each."""


def model(name: str):
    return load_part("models", name).spec


def test_kimi_k2_in_fp8_has_the_bytes_and_tensors_of_its_files() -> None:
    """An audit of all 61 shard headers: 139,644 tensors, 1,029,173,256,720 bytes."""
    found = checkpoint(model("kimi-k2"), "fp8")
    assert found.tensors + ROTARY == 139_644
    assert found.payload + 112 * ROTARY == 1_029_173_256_720


def test_deepseek_v3_in_fp8_has_the_tensors_of_its_index() -> None:
    """model.safetensors.index.json has 91,991 entries, the prediction module's among them."""
    assert checkpoint(model("deepseek-v3"), "fp8").tensors == 91_991


@pytest.mark.parametrize("name", ["kimi-k2", "llama3-70b", "qwen3-235b-a22b", "gpt-22b"])
def test_in_bf16_every_weight_has_two_bytes_and_a_correction_bias_four(name: str) -> None:
    spec = model(name)
    biases = (
        spec.moe.experts * (spec.layers - spec.moe.first_dense_layers)
        if spec.moe and spec.moe.correction_bias
        else 0
    )
    assert checkpoint(spec, "bf16").payload == 2 * parameters(spec).total + 2 * biases


def test_the_largest_tensor_is_the_embedding() -> None:
    assert checkpoint(model("kimi-k2"), "fp8").largest == 2 * 163_840 * 7168


def test_cuts_share_out_all_bytes() -> None:
    found = checkpoint(model("kimi-k2"), "fp8")
    assert sum(found.by_cut().values()) == found.payload
    # 60 layers of 384 experts of three 7168 x 2048 matrices, with a scale per 128 x 128.
    expert = 3 * (7168 * 2048 + 4 * 56 * 16)
    assert found.by_cut()["expert"] == 60 * 384 * expert
