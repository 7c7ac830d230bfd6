"""The sequence-wise balance loss against its formula, also where layers run again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reference.memory.stash import Stash
from reference.model import Transformer
from reference.model.transformer import initialize
from reference.trainer.stages import balanced, sequence_loss
from tests.reference.train.mini import Load
from twin.spec.memory import MemorySpec


def made(load: Load) -> tuple[Transformer, Tensor]:
    model = Transformer(load().model)
    initialize(model, 0)
    with torch.no_grad():
        for router in model.routers():
            router.weight.mul_(50)
    tokens = torch.randint(0, 256, (3, 17), generator=torch.Generator().manual_seed(0))
    return model, tokens


def gradients(
    model: Transformer, tokens: Tensor, coefficient: float, policy: MemorySpec | None = None
) -> dict[str, Tensor]:
    model.zero_grad()
    with balanced([model], coefficient, 16):
        with Stash(policy or MemorySpec()):
            loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def test_the_loss_is_the_papers_formula(load: Load) -> None:
    """Equations 17 to 20 of arXiv:2412.19437, with loops."""
    model, _ = made(load)
    router = next(model.routers())
    x = torch.randn(2 * 5, 32, generator=torch.Generator().manual_seed(1))
    chosen, _ = router(x)
    expected = 0.0
    for sequence in range(2):
        rows = range(sequence * 5, sequence * 5 + 5)
        scores = {row: (x[row] @ router.weight.T).sigmoid() for row in rows}
        for expert in range(4):
            f = 4 / (2 * 5) * sum(expert in chosen[row].tolist() for row in rows)
            p = sum((scores[row][expert] / scores[row].sum()).item() for row in rows) / 5
            expected += f * p / 2
    assert sequence_loss(router, x, chosen, 5).item() == pytest.approx(expected, rel=1e-5)


def test_its_gradient_is_that_of_a_term_added_to_the_loss(load: Load) -> None:
    model, tokens = made(load)
    attached = gradients(model, tokens, 0.3)
    model.zero_grad()
    router = next(model.routers())
    seen: list[Tensor] = []
    handle = router.register_forward_hook(
        lambda _, inputs, output: seen.append(sequence_loss(router, inputs[0], output[0], 16))
    )
    loss = model.loss(tokens[:, :-1], tokens[:, 1:])
    handle.remove()
    (loss + 0.3 * seen[0]).backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(attached[name], weight.grad, msg=name)


def test_it_changes_gradients_and_no_loss_and_leaves_nothing_behind(load: Load) -> None:
    model, tokens = made(load)
    without = gradients(model, tokens, 0.0)
    with_it = gradients(model, tokens, 0.3)
    again = gradients(model, tokens, 0.0)
    router = "layers.1.ffn.router.weight"
    assert not torch.allclose(without[router], with_it[router], rtol=1e-3)
    assert all(torch.equal(without[name], again[name]) for name in without)


def test_it_is_the_same_where_whole_layers_run_again(load: Load) -> None:
    model, tokens = made(load)
    plain = gradients(model, tokens, 0.3)
    again = gradients(model, tokens, 0.3, MemorySpec(recompute=("full",)))
    assert all(torch.equal(plain[name], again[name]) for name in plain)
