"""FP8 weights with a scale per block of 128 x 128 are read as DeepSeek-V3's released files mean
them, at ragged edges, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.convert.config import tensors
from reference.convert.hugging_face import from_hf
from tests.reference.convert.folders import put, released, weights_of
from tests.reference.model.peers import LATENT, changed
from twin.errors import UsageError

WIDE = changed(LATENT, layers=2, hidden=160, ffn__width=300, moe__width=136, moe__experts=4)
QUANTIZED = {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}
KEPT = ("embed_tokens", "lm_head", "norm", "mlp.gate.")
"""What released files leave in bf16."""


def quantized(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """E4M3 values at random, and scales beside them."""
    generator = torch.Generator().manual_seed(1)
    found: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if any(part in name for part in KEPT):
            found[name] = tensor
            continue
        rows, columns = tensor.shape
        found[name] = tensor.to(torch.float8_e4m3fn)
        blocks = (-(-rows // 128), -(-columns // 128))
        found[f"{name}_scale_inv"] = torch.rand(blocks, generator=generator) + 0.5
    return found


def by_hand(weights: dict[str, Tensor], name: str) -> Tensor:
    """Block by block, in a loop."""
    tensor = weights[name]
    if tensor.dtype != torch.float8_e4m3fn:
        return tensor
    result = torch.empty(tensor.shape, dtype=torch.bfloat16)
    for (row, column), scale in _blocks(weights[f"{name}_scale_inv"]):
        place = (slice(row * 128, (row + 1) * 128), slice(column * 128, (column + 1) * 128))
        result[place] = (tensor[place].float() * scale).bfloat16()
    return result


def _blocks(scales: Tensor) -> list[tuple[tuple[int, int], Tensor]]:
    rows, columns = scales.shape
    return [((r, c), scales[r, c]) for r in range(rows) for c in range(columns)]


def test_blocks_are_scaled_and_become_bf16(tmp_path: Path) -> None:
    weights = quantized(released(WIDE))
    put(tmp_path / "hf", WIDE, weights, quantization_config=QUANTIZED)
    from_hf(tmp_path / "hf", tmp_path / "ours")
    found = weights_of(tmp_path / "ours")
    assert any(tensor.dtype == torch.float8_e4m3fn for tensor in weights.values())
    for whole in tensors(WIDE):
        wanted = torch.cat([by_hand(weights, part.theirs).flatten() for part in whole.parts])
        assert found[whole.name].dtype == wanted.dtype
        assert torch.equal(found[whole.name].flatten(), wanted), whole.name


def test_a_weight_without_its_scale_is_named(tmp_path: Path) -> None:
    weights = quantized(released(WIDE))
    del weights["model.layers.0.mlp.up_proj.weight_scale_inv"]
    weights["model.layers.0.mlp.down_proj.weight_scale_inv"] = torch.ones(1, 1)
    put(tmp_path / "hf", WIDE, weights, quantization_config=QUANTIZED)
    with pytest.raises(UsageError) as caught:
        from_hf(tmp_path / "hf", tmp_path / "ours")
    text = str(caught.value)
    assert "TW253 1 tensor is missing: `model.layers.0.mlp.up_proj.weight_scale_inv`" in text
    assert "down_proj.weight_scale_inv 1x1 instead of 2x3" in text


@pytest.mark.parametrize(
    "said",
    [
        {"quant_method": "compressed-tensors", "format": "pack-quantized"},
        {"quant_method": "fp8", "weight_block_size": [64, 64]},
        {"quant_method": "fp8"},
    ],
)
def test_other_quantization_is_refused_by_name(said: dict[str, Any], tmp_path: Path) -> None:
    put(tmp_path / "hf", WIDE, released(WIDE), quantization_config=said)
    with pytest.raises(UsageError, match=f"TW259 weights quantized by `{said['quant_method']}`"):
        from_hf(tmp_path / "hf", tmp_path / "ours")
