"""A small model, one step of it under a memory policy, and Kimi K2's policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from reference.memory.stash import Stash
from reference.model import Transformer
from reference.model.transformer import initialize
from twin.loading import load_part
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec

KIMI_K2 = MemorySpec(
    recompute=("norms", "swiglu", "mla_up", "moe_down"),
    fp8_store=("moe_up_input", "swiglu_input"),
    offload=("activations",),
)
"""Kimi K2 report (arXiv:2507.20534), section 2.4."""

PICO = ModelSpec.model_validate(
    {
        "name": "pico",
        "layers": 3,
        "hidden": 48,
        "vocab": 96,
        "attention": {
            "kind": "mla",
            "heads": 3,
            "q_lora_rank": 20,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 12,
            "qk_rope_head_dim": 4,
            "v_head_dim": 8,
        },
        "ffn": {"kind": "swiglu", "width": 72},
        "moe": {
            "experts": 6,
            "top_k": 2,
            "width": 24,
            "shared_experts": 1,
            "first_dense_layers": 1,
            "correction_bias": True,
            "scores": "sigmoid",
        },
    }
)
"""A dense layer and two with experts, all widths different."""
GROUPED = ModelSpec.model_validate(
    {
        "name": "grouped",
        "layers": 2,
        "hidden": 48,
        "vocab": 96,
        "attention": {"kind": "gqa", "heads": 4, "kv_heads": 2, "head_dim": 12, "qk_norm": True},
        "ffn": {"kind": "swiglu", "width": 72},
    }
)
"""Neither latents nor experts."""

EXACT = {
    "nothing": MemorySpec(),
    **{
        name: MemorySpec(recompute=(name,))
        for name in ("norms", "swiglu", "mla_up", "moe_down", "attention_core", "full")
    },
    "offload": MemorySpec(offload=("activations",)),
    "all": MemorySpec(
        recompute=("norms", "swiglu", "mla_up", "moe_down", "attention_core"),
        offload=("activations",),
    ),
    "full and offload": MemorySpec(recompute=("full", "norms"), offload=("activations",)),
}
"""Policies that change no number."""


@dataclass(frozen=True)
class Outcome:
    """What a step gave."""

    loss: Tensor
    gradients: dict[str, Tensor]
    stash: Stash


@cache
def spec(name: str) -> ModelSpec:
    found = load_part("models", name).spec
    assert isinstance(found, ModelSpec)
    return found


def model(
    name: str | ModelSpec = PICO, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Transformer:
    made = Transformer(spec(name) if isinstance(name, str) else name, dtype=dtype, device=device)
    initialize(made, 0)
    return made


def tokens(of: Transformer, batch: int = 2, length: int = 24) -> Tensor:
    device = of.head.weight.device
    if device.type == "meta":
        return torch.zeros(batch, length, dtype=torch.int64, device=device)
    generator = torch.Generator().manual_seed(1)
    return torch.randint(of.spec.vocab, (batch, length), generator=generator).to(device)


def forward(
    of: Transformer, tokens_BT: Tensor, policy: MemorySpec, *, measure: bool = False
) -> tuple[Tensor, Stash]:
    with Stash(policy, measure=measure) as stash:
        loss = of.loss(tokens_BT, tokens_BT.roll(-1, 1))
    return loss, stash


def step(
    of: Transformer, tokens_BT: Tensor, policy: MemorySpec, *, measure: bool = False
) -> Outcome:
    of.zero_grad(set_to_none=True)
    loss, stash = forward(of, tokens_BT, policy, measure=measure)
    loss.backward()
    return Outcome(loss.detach(), gradients(of), stash)


def plain_step(of: Transformer, tokens_BT: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The same without any of our machinery active."""
    of.zero_grad(set_to_none=True)
    loss = of.loss(tokens_BT, tokens_BT.roll(-1, 1))
    loss.backward()
    return loss.detach(), gradients(of)


def gradients(of: Transformer) -> dict[str, Tensor]:
    found = {name: one.grad for name, one in of.named_parameters()}
    return {name: one.clone() for name, one in found.items() if one is not None}


def assert_same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
