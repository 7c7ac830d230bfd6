"""How much work a token is, counted from the model at hand, and what the device could do.

Model FLOP as in PaLM's MFU (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): 6 per weight in a
matrix product that the token passes (2 forward, 4 backward), and attention's two products over the
visible half of the sequence. What recomputation adds is not counted; neither are norms, SwiGLU,
softmax, the optimizer, nor the lookup of embeddings.
"""

from __future__ import annotations

from typing import Final

import torch

from reference.model import Transformer
from twin.loading import catalog_parts, load_part
from twin.spec.model import LatentAttention, ModelSpec

_PER_WEIGHT: Final = 6


def matmul_weights_per_token(model: Transformer) -> int:
    """Weights of the matrix products that one token passes: of routed experts `top_k`, of tied
    embeddings the head's use, of the input embedding none."""
    moe = model.spec.moe
    total = 0
    for name, parameter in model.named_parameters():
        if parameter.dim() == 3 and moe is not None:
            total += parameter.numel() * moe.top_k // moe.experts
        elif parameter.dim() == 2 and not name.startswith("embedding."):
            total += parameter.numel()
    return total + (model.embedding.weight.numel() if model.spec.tied_embeddings else 0)


def attention_flop_per_token(spec: ModelSpec, sequence: int) -> float:
    """Of queries times keys and probabilities times values, forward and backward, on average over
    a causal sequence: 3 x 2 x H (Q + V) (T + 1) / 2 per layer."""
    attention = spec.attention
    if isinstance(attention, LatentAttention):
        query = attention.qk_nope_head_dim + attention.qk_rope_head_dim
        widths = attention.heads * (query + attention.v_head_dim)
    else:
        widths = attention.heads * 2 * attention.head_dim
    return spec.layers * 3 * 2 * widths * (sequence + 1) / 2


def flop_per_token(model: Transformer, sequence: int) -> float:
    """Model FLOP of one trained token in a sequence of this many tokens."""
    weights = matmul_weights_per_token(model)
    return _PER_WEIGHT * weights + attention_flop_per_token(model.spec, sequence)


def peak_flop_per_s(device: torch.device, dtype: torch.dtype) -> float | None:
    """Dense matrix FLOP/s of the device's datasheet, from the catalog's GPUs; None where the
    catalog does not know it, as for CPUs, or for fp32, whose peak depends on a setting (TF32)."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return None
    return catalog_peak(torch.cuda.get_device_name(device))


def catalog_peak(device_name: str) -> float | None:
    """The bf16 peak of the GPU whose catalog name begins with a word of the device's. The catalog
    holds SXM boards; PCIe and NVL ones of the same name are slower, and unknown."""
    words = device_name.lower().replace("-", " ").split()
    known = [name for name in catalog_parts("gpus") if name.split("-")[0] in words]
    if not known or {"pcie", "nvl"} & {*words}:
        return None
    return load_part("gpus", min(known, key=len)).spec.bf16_dense
