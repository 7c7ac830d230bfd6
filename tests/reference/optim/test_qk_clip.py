"""QK-clip's laws: gamma on every logit of the heads that passed, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from reference.model import Transformer
from reference.model.transformer import initialize
from reference.optim.muonclip import MuonClip
from reference.optim.qk_clip import clip, least_threshold
from reference.optim.spec import OptimizerSpec, QkClipSpec
from tests.reference.optim.heads import Heads, Latent, Plain
from twin.loading import load_part
from twin.spec.model import GroupedAttention

K2 = QkClipSpec()
MAXIMA = [250.0, 100.0, 99.9, -3.0, 101.0, -math.inf]


def optimizer_of(model: nn.Module) -> MuonClip:
    return MuonClip(model.named_parameters(), OptimizerSpec())


@pytest.mark.parametrize("kind", [Latent, Plain])
def test_every_logit_of_a_head_that_passed_is_scaled_by_exactly_gamma(kind):
    block = kind(MAXIMA)
    before = [block.logits(head) for head in range(6)]
    weights = {name: param.detach().clone() for name, param in block.named_parameters()}
    report = clip(block, optimizer_of(block), K2)
    for head, largest in enumerate(MAXIMA):
        gamma = min(1.0, 100 / largest) if largest > 0 else 1.0
        after = block.logits(head)
        if gamma == 1:
            assert torch.equal(after, before[head])
        else:
            expected = gamma * before[head]
            assert (after - expected).abs().max() <= 1e-12 * expected.abs().max()
    for name, param in block.named_parameters():
        rows, old = param.detach(), weights[name]
        if rows.shape[0] % 6:
            assert torch.equal(rows, old)  # the rotary key, which belongs to all heads
        else:
            kept = [1, 2, 3, 5]
            assert torch.equal(rows.view(6, -1)[kept], old.view(6, -1)[kept])
    assert (report.heads, report.heads_seen, report.max_logit) == (2, 6, 250.0)
    assert report.least_gamma == 0.4


def test_value_rows_and_the_shared_rope_key_keep_their_bits():
    block = Latent([500.0, 200.0])
    values, rope = block.values().clone(), block.rope_key.detach().clone()
    clip(block, optimizer_of(block), K2)
    assert torch.equal(block.values(), values)
    assert torch.equal(block.rope_key, rope)


def test_heads_with_negative_or_broken_maxima_make_no_nan():
    block = Latent([-50.0, 0.0, math.nan, math.inf, 400.0])
    before = [block.logits(head) for head in range(5)]
    report = clip(block, optimizer_of(block), K2)
    assert all(torch.equal(block.logits(head), before[head]) for head in range(4))
    assert all(param.isfinite().all() for param in block.parameters())
    assert (report.heads, report.heads_diverged, report.max_logit) == (1, 2, 400.0)


def test_masters_and_their_rounded_copies_are_both_clipped():
    block = Latent([160.0, 20.0]).bfloat16()
    block.max_logit_H = block.max_logit_H.float()
    optimizer = optimizer_of(block)
    before = {p: optimizer.state[p]["master"].clone() for p in block.parameters()}
    clip(block, optimizer, K2)
    for param in block.parameters():
        master = optimizer.state[param]["master"]
        assert torch.equal(param, master.bfloat16())
        assert torch.equal(master, before[param]) == (param is block.rope_key)
    ratio = optimizer.state[block.q_up]["master"].view(2, 5, 6) / before[block.q_up].view(2, 5, 6)
    assert torch.allclose(ratio[0, :3], torch.tensor(0.625**0.5))
    assert torch.allclose(ratio[0, 3:], torch.tensor(0.625))
    assert torch.equal(ratio[1], torch.ones(5, 6))


@pytest.mark.parametrize("threshold", [49.0, 0.3, 103.0, 1e-3])
def test_a_maximum_at_the_threshold_changes_no_bit(threshold):
    block = Latent([0.0, threshold / 2, -threshold])
    before = block.q_up.detach().clone()
    block.max_logit_H = block.max_logit_H.double()
    block.max_logit_H[0].fill_(threshold)
    report = clip(block, optimizer_of(block), QkClipSpec(threshold=threshold))
    assert torch.equal(block.q_up, before)
    assert (report.heads, report.least_gamma) == (0, 1.0)


def test_maxima_are_forgotten_so_that_the_next_step_clips_nothing():
    block = Latent([200.0, 20.0])
    optimizer = optimizer_of(block)
    clip(block, optimizer, K2)
    after = block.q_up.detach().clone()
    report = clip(block, optimizer, K2)
    assert torch.equal(block.q_up, after)
    assert (report.heads, report.max_logit) == (0, -math.inf)


def gammas(model: nn.Module, spec: QkClipSpec) -> list[float]:
    """The factor that each head of each layer got, seen in its logits."""
    blocks = [block for block in model.modules() if isinstance(block, Plain)]
    before = [[block.logits(head) for head in range(block.heads)] for block in blocks]
    clip(model, optimizer_of(model), spec)
    return [
        round((block.logits(head) / old).mean().item(), 9)
        for block, olds in zip(blocks, before, strict=True)
        for head, old in enumerate(olds)
    ]


def test_variants_differ_in_whom_they_scale():
    def model() -> nn.Module:
        return nn.ModuleList([Plain([400.0, 10.0, 5.0]), Plain([10.0, 50.0, 8.0], seed=7)])

    assert gammas(model(), QkClipSpec(variant="off")) == [1, 1, 1, 1, 1, 1]
    assert gammas(model(), QkClipSpec(variant="per_head")) == [0.25, 1, 1, 1, 1, 1]
    assert gammas(model(), QkClipSpec(variant="per_layer")) == [0.25, 0.25, 0.25, 1, 1, 1]
    # The median of six is the third, 10: heads above 40 are outliers.
    assert gammas(model(), QkClipSpec(variant="adaptive")) == [0.1, 1, 1, 1, 0.8, 1]


@pytest.mark.parametrize(
    ("maxima", "threshold"),
    [
        ([1.0, 2.0, 3.0, 90.0], 30.0),  # quiet heads: the floor
        ([15.0, 15.0, 15.0, 70.0], 60.0),  # four times the median
        ([80.0, 90.0, 95.0, 300.0], 100.0),  # all grew: K2's threshold
        ([-5.0, -4.0, -3.0, 40.0], 30.0),
        ([math.nan, math.inf, 12.0], 48.0),
        ([-math.inf, -math.inf], 100.0),  # no head ran
    ],
)
def test_the_adaptive_threshold_follows_the_median_between_its_bounds(maxima, threshold):
    block = Plain(maxima)
    report = clip(block, optimizer_of(block), QkClipSpec(variant="adaptive"))
    assert report.threshold == threshold


@pytest.mark.parametrize("variant", ["off", "per_layer", "per_head", "adaptive"])
def test_upper_bounds_below_the_least_threshold_change_no_gamma(variant):
    """What a GPU gives (`reference.kernels.attention`)."""
    spec, maxima = QkClipSpec(variant=variant), [250.0, 100.0, 99.9, -3.0, 101.0]
    least = least_threshold(spec)
    bounds = [one if one > least else min(one + 8.0, max(one, least)) for one in maxima]
    assert gammas(Plain(bounds), spec) == gammas(Plain(maxima), spec)
    assert (bounds == maxima) == (variant == "adaptive")


def test_the_report_names_every_layer_and_off_still_looks():
    model = nn.ModuleList([Plain([4.0, 10.0]), Plain([120.0, 5.0])])
    report = clip(model, optimizer_of(model), QkClipSpec(variant="off"))
    assert report.layer_max_logits == (10.0, 120.0)
    assert (report.heads, report.least_gamma, report.threshold) == (0, 1.0, math.inf)
    assert all(block.max_logit_H.eq(-math.inf).all() for block in model if isinstance(block, Heads))


def test_a_model_without_attention_is_no_error():
    model = nn.Linear(3, 3)
    report = clip(model, optimizer_of(model), K2)
    assert (report.heads_seen, report.max_logit, report.layer_max_logits) == (0, -math.inf, ())


@pytest.mark.parametrize("attention", ["mla", "mha", "gqa"])
def test_the_first_layer_of_a_real_model_ends_at_the_threshold(attention):
    spec = load_part("models", "kimi-k2-nano").spec
    if attention != "mla":
        heads = spec.attention.heads
        shared = heads if attention == "mha" else heads // 2
        grouped = GroupedAttention(kind="gqa", heads=heads, kv_heads=shared, head_dim=16)
        spec = spec.model_copy(update={"attention": grouped})
    model = Transformer(spec, dtype=torch.float64)
    initialize(model, seed=0)
    tokens = torch.randint(spec.vocab, (2, 12), generator=torch.Generator().manual_seed(0))
    model(tokens)
    block = next(model.attentions())
    before = block.max_logit_H.clone()
    threshold = float(before.median())
    report = clip(model, optimizer_of(model), QkClipSpec(threshold=threshold))
    assert 0 < report.heads < report.heads_seen
    model(tokens)
    assert (before > threshold).any()
    # fp32 maxima of float64 logits.
    assert torch.allclose(block.max_logit_H, before.clamp(max=threshold), rtol=1e-6)
