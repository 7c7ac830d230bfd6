"""Our model and that of `transformers` are the same function of the same weights: DeepSeek-V3 in
every variant, and for grouped-query attention Llama, Qwen3 and Qwen3-MoE."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from reference.convert.config import tensors
from tests.reference.model.peers import (
    GROUPED,
    LATENT,
    changed,
    double,
    give,
    ours,
    peer,
    unstacked,
    yarn,
)
from twin.spec.model import ModelSpec

BETAS = {"beta_fast": 1.0, "beta_slow": 1.0}
SOFTMAX = {"experts": 8, "top_k": 3, "width": 12, "scores": "softmax"}
K2_YARN = yarn(32, 16, **BETAS)

LATENT_VARIANTS = {
    "K2's": changed(LATENT),
    "queries at full rank": changed(LATENT, attention__q_lora_rank=None),
    "4 groups": changed(LATENT, moe__groups=4, moe__top_groups=2),
    "2 groups, weights as they are": changed(
        LATENT, moe__groups=2, moe__top_groups=1, moe__normalize_weights=False
    ),
    "YaRN as in K2": changed(LATENT, rope={"theta": 50_000, "yarn": K2_YARN}),
    "YaRN as in DeepSeek-V3": changed(LATENT, rope={"yarn": yarn(40, 16)}),
    "YaRN, cosines scaled": changed(
        LATENT, rope={"yarn": yarn(40, 16, mscale=1.5, mscale_all_dim=0.5)}
    ),
    "YaRN, logits as they are": changed(LATENT, rope={"yarn": yarn(8, 16, mscale_all_dim=0.0)}),
    "2 shared experts": changed(LATENT, moe__shared_experts=2),
    "2 dense layers": changed(LATENT, moe__first_dense_layers=2),
    "no dense layer": changed(LATENT, moe__first_dense_layers=0, moe__top_k=8),
    "a large epsilon": changed(LATENT, norm_eps=1e-2),
    "YaRN, groups, full rank": changed(
        LATENT,
        rope={"theta": 50_000, "yarn": K2_YARN},
        moe__groups=4,
        moe__top_groups=3,
        attention__q_lora_rank=None,
    ),
}
GROUPED_VARIANTS = {
    "Llama, grouped": changed(GROUPED),
    "Llama, multi-head": changed(GROUPED, attention__kv_heads=4, norm_eps=1e-3),
    "Llama, YaRN": changed(GROUPED, rope={"yarn": yarn(8, 16, mscale_all_dim=0.0)}),
    "Qwen3, tied": changed(GROUPED, attention__qk_norm=True, tied_embeddings=True),
    "Qwen3-MoE": changed(GROUPED, attention__qk_norm=True, moe=SOFTMAX),
    "Qwen3-MoE, weights as they are": changed(
        GROUPED, attention__qk_norm=True, moe={**SOFTMAX, "normalize_weights": False}
    ),
}
VARIANTS = LATENT_VARIANTS | GROUPED_VARIANTS
every_variant = pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)


@cache
def batch() -> tuple[Tensor, Tensor]:
    """Tokens and what follows them; longer than the original contexts of YaRN."""
    drawn = torch.randint(0, 61, (2, 41), generator=torch.Generator().manual_seed(1))
    return drawn[:, :-1], drawn[:, 1:]


def logits_of(theirs: nn.Module) -> Tensor:
    return theirs(batch()[0], use_cache=False).logits


def loss_of(logits_BTW: Tensor) -> Tensor:
    return functional.cross_entropy(logits_BTW.flatten(0, 1), batch()[1].flatten())


@every_variant
def test_logits_are_those_of_transformers(spec: ModelSpec) -> None:
    theirs = peer(spec)
    with torch.no_grad():
        found, wanted = ours(spec, theirs)(batch()[0]), logits_of(theirs)
    assert wanted.std() > 0.5
    assert (found - wanted).abs().max() <= 1e-5


@every_variant
def test_gradients_are_those_of_transformers(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    double(monkeypatch)
    theirs = peer(spec).double()
    own = ours(spec, theirs, torch.float64)
    loss_of(logits_of(theirs)).backward()
    own.loss(*batch()).backward()
    wanted = unstacked(theirs, gradients=True)
    found = {name: parameter.grad for name, parameter in own.named_parameters()}
    for whole in tensors(spec):
        if (gradient := found.get(whole.name)) is None:
            assert whole.name.endswith("router.bias")
            continue
        same = torch.cat([wanted[part.theirs].flatten() for part in whole.parts])
        assert (gradient.flatten() - same).abs().max() <= 1e-12, whole.name


@pytest.mark.parametrize("name", ["K2's", "YaRN, groups, full rank", "Qwen3, tied"])
def test_our_weights_in_their_model_give_the_same_logits(name: str) -> None:
    spec = VARIANTS[name]
    own, theirs = ours(spec, peer(spec, seed=1)), peer(spec, seed=2)
    give(own, theirs)
    with torch.no_grad():
        assert (own(batch()[0]) - logits_of(theirs)).abs().max() <= 1e-5


def test_the_rotary_numbers_are_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """K2's pairs are (0, 1), (2, 3), ...; with halves paired their model differs from ours."""
    spec = VARIANTS["K2's"]
    theirs = peer(spec)
    monkeypatch.setattr(theirs.config, "rope_interleave", False)
    with torch.no_grad():
        assert (ours(spec, theirs)(batch()[0]) - logits_of(theirs)).abs().max() > 0.01


def test_in_bf16_few_tokens_choose_other_experts() -> None:
    """Rounding flips choices between experts of nearly the same score, in any two implementations;
    this is why logits are compared in fp32."""
    spec = VARIANTS["K2's"]
    theirs = peer(spec).bfloat16()
    for name, buffer in theirs.named_buffers():
        if name.endswith("correction_bias"):
            buffer.data = buffer.data.float()
    own = ours(spec, theirs, torch.bfloat16)
    seen: dict[str, list[Tensor]] = {"ours": [], "theirs": []}
    for router in own.routers():
        router.register_forward_hook(lambda *call: seen["ours"].append(call[2][0]))
    for name, module in theirs.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(lambda *call: seen["theirs"].append(call[2][2]))
    tokens = torch.randint(0, 61, (8, 64), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        own(tokens)
        theirs(tokens, use_cache=False)
    pairs = zip(seen["ours"], seen["theirs"], strict=True)
    flipped = [(a.sort().values != b.sort().values).any(-1) for a, b in pairs]
    share = torch.cat(flipped).float().mean().item()
    print(f"other experts in bf16: {share:.2%} of (token, layer) pairs")
    assert share < 0.1
