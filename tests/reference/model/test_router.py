"""The choice of experts, its weights, and the bias that balances it."""

from __future__ import annotations

import torch

from reference.memory import stash
from reference.model.moe import Router
from twin.spec.model import Moe

WIDTH = 8


def _router(**changes: object) -> Router:
    settings = {
        "experts": 8,
        "top_k": 2,
        "width": 4,
        "correction_bias": True,
        "scores": "sigmoid",
        "routed_scale": 2.5,
        **changes,
    }
    spec = Moe.model_validate(settings)
    router = Router(spec, WIDTH, torch.device("cpu"), torch.float32)
    torch.nn.init.normal_(router.weight, generator=torch.Generator().manual_seed(0))
    return router


def test_weights_are_the_chosen_affinities_over_their_sum_times_the_scale() -> None:
    router, x = _router(), torch.randn(5, WIDTH)
    chosen, weights = router(x)
    scores = (x @ router.weight.T).sigmoid()
    best = scores.topk(2).indices
    assert chosen.sort().values.equal(best.sort().values)
    picked = scores.gather(1, chosen)
    torch.testing.assert_close(weights, 2.5 * picked / picked.sum(1, keepdim=True))


def test_the_bias_changes_the_choice_and_not_the_weights() -> None:
    router, x = _router(), torch.randn(5, WIDTH)
    router.bias[3] = 10.0
    chosen, weights = router(x)
    assert (chosen == 3).any(1).all()
    picked = (x @ router.weight.T).sigmoid().gather(1, chosen)
    torch.testing.assert_close(weights, 2.5 * picked / picked.sum(1, keepdim=True))


def test_a_uniform_bias_changes_nothing() -> None:
    router, x = _router(), torch.randn(40, WIDTH)
    before = router(x)
    router.bias += 0.3
    after = router(x)
    assert before[0].sort().values.equal(after[0].sort().values)


def test_softmax_affinities_may_stay_as_they_are() -> None:
    router = _router(scores="softmax", normalize_weights=False, routed_scale=1.0)
    x = torch.randn(5, WIDTH)
    chosen, weights = router(x)
    torch.testing.assert_close(weights, (x @ router.weight.T).softmax(-1).gather(1, chosen))


def test_experts_lie_in_the_groups_whose_two_best_sum_highest() -> None:
    router = _router(experts=6, groups=3, top_groups=1)
    torch.nn.init.zeros_(router.weight)
    router.bias.copy_(torch.tensor([0.9, 0.0, 0.5, 0.6, 0.7, 0.1]))
    chosen, _ = router(torch.randn(1, WIDTH))
    assert sorted(chosen[0].tolist()) == [2, 3]


def test_the_bias_moves_the_load_of_a_skewed_router_towards_uniform() -> None:
    router, x = _router(), torch.randn(512, WIDTH, generator=torch.Generator().manual_seed(1))
    x = x + 0.5 * router.weight[0].detach()  # expert 0 is everybody's favourite

    def worst() -> float:
        router.reset_load()
        chosen, _ = router(x)
        load = torch.bincount(chosen.flatten(), minlength=8)
        router.count(load)
        return load.max().item() / (chosen.numel() / 8)

    before = worst()
    for _ in range(300):
        worst()
        router.update_bias(0.002)
    assert before > 1.5
    assert worst() < 1.05


def test_an_expert_above_the_mean_loses_and_one_below_gains_one_rate() -> None:
    router = _router(experts=4)
    router.count(torch.tensor([4, 2, 0, 2]))
    router.update_bias(0.001)
    torch.testing.assert_close(router.bias, torch.tensor([-0.001, 0.0, 0.001, 0.0]))


def test_loads_of_micro_batches_add_up_and_a_recomputed_one_counts_nothing(monkeypatch) -> None:
    router, load = _router(), torch.arange(8)
    router.count(load)
    router.count(load)
    monkeypatch.setattr("reference.model.moe.recomputing", lambda: True)
    router.count(load)
    assert router.load_E.tolist() == (2 * load).tolist()
    assert not stash.recomputing()


def test_evaluation_counts_nothing() -> None:
    router = _router().eval()
    router.count(torch.ones(8, dtype=torch.int64))
    assert router.load_E.sum() == 0


def test_the_logits_gradients_are_those_of_plain_autograd() -> None:
    router = _router()
    x = torch.randn(5, WIDTH, requires_grad=True)
    _, weights = router(x)
    weights.pow(2).sum().backward()
    own = [grad.clone() for grad in (x.grad, router.weight.grad) if grad is not None]
    chosen, _ = router(x)
    picked = (x @ router.weight.T).sigmoid().gather(1, chosen)
    (2.5 * picked / picked.sum(1, keepdim=True)).pow(2).sum().backward(inputs=[x, router.weight])
    for mine, both in zip(own, (x.grad, router.weight.grad), strict=True):
        assert both is not None
        torch.testing.assert_close(2 * mine, both)
