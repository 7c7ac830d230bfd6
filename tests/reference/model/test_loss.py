"""What a loss counts, and what it does not compute."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from reference.model import Transformer
from reference.model.transformer import IGNORED, initialize
from twin.loading import load_part
from twin.spec.model import ModelSpec


@pytest.fixture
def model() -> Transformer:
    spec = load_part("models", "kimi-k2-nano").spec
    assert isinstance(spec, ModelSpec)
    made = Transformer(spec.model_copy(update={"vocab": 64, "layers": 2}), dtype=torch.float64)
    initialize(made, 0)
    return made


@pytest.mark.parametrize("weighted", [False, True])
def test_targets_that_are_ignored_have_neither_loss_nor_logits(
    model: Transformer, *, weighted: bool
) -> None:
    drawn = torch.Generator().manual_seed(3)
    tokens_BT = torch.randint(0, 64, (3, 20), generator=drawn)
    targets_BT = torch.randint(0, 64, (3, 20), generator=drawn)
    targets_BT[torch.rand(3, 20, generator=drawn) < 0.7] = IGNORED
    weights_BT = torch.rand(3, 20, generator=drawn) if weighted else None

    logits_BTW = model(tokens_BT)
    learned_BT = targets_BT != IGNORED
    nats_BT = -functional.log_softmax(logits_BTW, -1).gather(-1, targets_BT.clamp(min=0)[..., None])
    even_BT = learned_BT.double() / learned_BT.sum()
    shares_BT = even_BT if weights_BT is None else weights_BT * learned_BT
    wanted = (nats_BT[..., 0] * shares_BT).sum()
    names, weights = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(wanted, weights, allow_unused=True)

    rows: list[int] = []
    model.head.register_forward_hook(lambda _, given, __: rows.append(len(given[0])))
    found = model.loss(tokens_BT, targets_BT, weights_BT)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-12)
    assert rows == [int(learned_BT.sum())]
    for name, mine, other in zip(
        names, torch.autograd.grad(found, weights, allow_unused=True), gradients, strict=True
    ):
        assert (mine is None) == (other is None), name
        if mine is not None and other is not None:
            torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-13)
