"""The models of `transformers`, an implementation that shares no code with ours, with random
weights, and the way from their weights to ours and back.

`transformers` stacks the experts of a layer in memory; here they are taken apart into the names of
the released files, which `reference.convert.config` maps.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from reference.convert.config import tensors
from reference.model import Transformer
from twin.spec.model import LatentAttention, ModelSpec

MODELS = ("deepseek_v3", "llama", "qwen3", "qwen3_moe")
"""Their models that these tests use."""

LATENT: dict[str, Any] = {
    "name": "latent",
    "layers": 3,
    "hidden": 32,
    "vocab": 61,
    "attention": {
        "kind": "mla",
        "heads": 3,
        "q_lora_rank": 20,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 10,
        "qk_rope_head_dim": 8,
        "v_head_dim": 6,
    },
    "ffn": {"kind": "swiglu", "width": 40},
    "moe": {
        "experts": 8,
        "top_k": 3,
        "width": 12,
        "shared_experts": 1,
        "first_dense_layers": 1,
        "correction_bias": True,
        "scores": "sigmoid",
        "routed_scale": 2.827,
    },
    "rope": {"theta": 50_000},
}
GROUPED: dict[str, Any] = {
    "name": "grouped",
    "layers": 2,
    "hidden": 32,
    "vocab": 61,
    "attention": {"kind": "gqa", "heads": 4, "kv_heads": 2, "head_dim": 8},
    "ffn": {"kind": "swiglu", "width": 40},
}


def transformers() -> Any:
    """The package. Its import takes nine seconds, so only tests that need it import it, and its
    types cost pyright another twenty, so it has none."""
    return import_module("transformers")


def changed(base: dict[str, Any], **changes: Any) -> ModelSpec:
    """A model with other fields; `section__field` is one of a section."""
    fields = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
    for path, value in changes.items():
        section, _, field = path.partition("__")
        if field:
            fields.setdefault(section, {})[field] = value
        else:
            fields[section] = value
    return ModelSpec.model_validate(fields)


def yarn(factor: float, original: int, **more: float) -> dict[str, Any]:
    return {"factor": factor, "original_context": f"{original}tok", **more}


def peer(spec: ModelSpec, seed: int = 0) -> nn.Module:
    """Their model of this shape, in fp32, with weights that make logits of about 1."""
    kind, config = _configured(spec)
    config._attn_implementation = config._experts_implementation = "eager"
    model = kind(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *_biases(model)]:
            noise = torch.randn(tensor.shape, generator=generator)
            if tensor.dim() == 1:
                tensor.copy_(noise * 0.1 + float("norm" in name))
            else:
                tensor.copy_(noise * tensor.shape[-1] ** -0.5)
    return model


def ours(spec: ModelSpec, theirs: nn.Module, dtype: torch.dtype = torch.float32) -> Transformer:
    """Our model with their weights."""
    model = Transformer(spec, dtype=dtype).eval()
    released = unstacked(theirs)
    state = {
        whole.name: torch.cat([released[part.theirs].flatten() for part in whole.parts]).view(
            whole.shape
        )
        for whole in tensors(spec)
    }
    if spec.tied_embeddings:
        state["head.weight"] = state["embedding.weight"]
    model.load_state_dict(state)
    return model


@torch.no_grad()
def give(model: Transformer, theirs: nn.Module) -> None:
    """Put our weights into their model."""
    state, released = model.state_dict(), unstacked(theirs)
    for whole in tensors(model.spec):
        for part in whole.parts:
            held = part.of(state[whole.name])
            assert isinstance(held, Tensor)
            released[part.theirs].copy_(held)


def unstacked(model: nn.Module, *, gradients: bool = False) -> dict[str, Tensor]:
    """Views of their weights, or of the gradients, under the names of the released files."""
    found: dict[str, Tensor] = {}
    for name, tensor in [*model.named_parameters(), *_biases(model)]:
        held = tensor.grad if gradients else tensor.detach()
        if held is None:
            continue
        stem, _, last = name.rpartition(".")
        if last == "gate_up_proj":
            for expert, matrix in enumerate(held):
                gate, up = matrix.chunk(2)
                found[f"{stem}.{expert}.gate_proj.weight"] = gate
                found[f"{stem}.{expert}.up_proj.weight"] = up
        elif last == "down_proj":
            for expert, matrix in enumerate(held):
                found[f"{stem}.{expert}.down_proj.weight"] = matrix
        else:
            found[name] = held
    return found


def double(patch: pytest.MonkeyPatch) -> None:
    """Let their modules widen to fp64 where they widen to fp32: the same formulas, in double
    precision. Angles of positions stay fp32, as ours do."""
    softmax = functional.softmax

    def wide(x: Tensor, *args: Any, dtype: torch.dtype | None = None, **more: Any) -> Tensor:
        return softmax(x, *args, dtype=x.dtype if dtype else None, **more)

    patch.setattr(functional, "softmax", wide)
    for name in MODELS:
        module = import_module(f"transformers.models.{name}.modeling_{name}")
        patch.setattr(module, "torch", _Doubled())


class _Doubled:
    """`torch`, with another fp32."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _biases(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [pair for pair in model.named_buffers() if pair[0].endswith("correction_bias")]


def _configured(spec: ModelSpec) -> tuple[type[Any], Any]:
    theirs = transformers()
    common = {
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "num_hidden_layers": spec.layers,
        "intermediate_size": spec.ffn.width,
        "rms_norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tied_embeddings,
        "rope_parameters": _rope(spec),
        "max_position_embeddings": 4096,
    }
    attention = spec.attention
    if isinstance(attention, LatentAttention):
        return theirs.DeepseekV3ForCausalLM, theirs.DeepseekV3Config(
            **common, **_latent(spec, attention)
        )
    own: dict[str, Any] = {
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
    }
    if not attention.qk_norm:
        return theirs.LlamaForCausalLM, theirs.LlamaConfig(**common, **own)
    if spec.moe is None:
        return theirs.Qwen3ForCausalLM, theirs.Qwen3Config(**common, **own)
    own |= {
        "num_experts": spec.moe.experts,
        "num_experts_per_tok": spec.moe.top_k,
        "moe_intermediate_size": spec.moe.width,
        "norm_topk_prob": spec.moe.normalize_weights,
    }
    return theirs.Qwen3MoeForCausalLM, theirs.Qwen3MoeConfig(**common, **own)


def _latent(spec: ModelSpec, attention: LatentAttention) -> dict[str, Any]:
    moe = spec.moe
    assert moe is not None
    return {
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.heads,
        "q_lora_rank": attention.q_lora_rank,
        "kv_lora_rank": attention.kv_lora_rank,
        "qk_nope_head_dim": attention.qk_nope_head_dim,
        "qk_rope_head_dim": attention.qk_rope_head_dim,
        "v_head_dim": attention.v_head_dim,
        "n_routed_experts": moe.experts,
        "num_experts_per_tok": moe.top_k,
        "n_group": moe.groups,
        "topk_group": moe.top_groups,
        "moe_intermediate_size": moe.width,
        "n_shared_experts": moe.shared_experts,
        "first_k_dense_replace": moe.first_dense_layers,
        "norm_topk_prob": moe.normalize_weights,
        "routed_scaling_factor": moe.routed_scale,
    }


def _rope(spec: ModelSpec) -> dict[str, Any]:
    stretched = spec.rope.yarn
    if stretched is None:
        return {"rope_type": "default", "rope_theta": spec.rope.theta}
    return {
        "rope_type": "yarn",
        "rope_theta": spec.rope.theta,
        "factor": stretched.factor,
        "original_max_position_embeddings": stretched.original_context,
        "beta_fast": stretched.beta_fast,
        "beta_slow": stretched.beta_slow,
        "mscale": stretched.mscale,
        "mscale_all_dim": stretched.mscale_all_dim,
    }
