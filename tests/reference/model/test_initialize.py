"""First weights follow from seed and name, and from nothing else."""

from __future__ import annotations

import torch

from reference.model import Transformer
from reference.model.transformer import STANDARD_DEVIATION, initialize
from twin.loading import load_part

NANO = load_part("models", "kimi-k2-nano").spec


def _started(layers: int, seed: int = 0) -> Transformer:
    model = Transformer(NANO.model_copy(update={"layers": layers}))
    initialize(model, seed)
    return model


def test_a_weight_starts_the_same_whatever_else_is_in_the_model() -> None:
    short, long = _started(2).state_dict(), _started(3).state_dict()
    assert all(long[name].equal(weight) for name, weight in short.items())


def test_another_seed_gives_other_weights() -> None:
    one, other = _started(2), _started(2, seed=1)
    assert not one.head.weight.equal(other.head.weight)


def test_experts_start_apart_with_the_stated_deviation() -> None:
    up = _started(2).get_parameter("layers.1.ffn.experts.up")
    assert not up[0].equal(up[1])
    assert abs(up.std().item() / STANDARD_DEVIATION - 1) < 0.02


def test_an_expert_rank_starts_as_its_part_of_the_whole() -> None:
    whole = _started(2).get_parameter("layers.1.ffn.experts.up")
    part = torch.nn.Module()
    part.up = torch.nn.Parameter(torch.empty_like(whole[4:8]))
    parent = torch.nn.Module()
    for name in ("experts", "ffn", "1", "layers"):
        parent = torch.nn.Module()
        parent.add_module(name, part)
        part = parent
    initialize(parent, 0, first_expert=4)
    assert parent.get_parameter("layers.1.ffn.experts.up").equal(whole[4:8])


def test_norms_start_with_gains_of_one_and_routers_without_bias() -> None:
    model = _started(2)
    assert model.final_norm.gain.eq(1).all()
    assert all(router.bias.eq(0).all() for router in model.routers())
