"""Largest logits and loads of experts are those of all replicas, in one message each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reference.model.moe import Router
from reference.optim.muonclip import MuonClip
from reference.optim.qk_clip import clip
from reference.optim.spec import OptimizerSpec, QkClipSpec
from reference.parallel.replicas import Holders, Replicas
from reference.parallel.timeline import Tape
from reference.trainer.step import agree_loads, agree_maxima, population
from tests.reference.optim.heads import Latent, Plain
from tests.reference.parallel.ranks import groups_of, run_ranks
from twin.spec.model import Moe

MAXIMA = [
    [[90.0, 150.0], [1.0, 2.0, 400.0]],
    [[130.0, -7.0], [500.0, 3.0, 0.5]],
]
"""Of two layers, by rank: 2 and 3 heads."""
LARGEST = [[130.0, 150.0], [500.0, 3.0, 400.0]]


def parts_with(maxima: list[list[float]]) -> list[nn.Module]:
    """Two chunks of one layer each."""
    return [nn.ModuleDict({"a": Latent(maxima[0], 3)}), nn.ModuleDict({"b": Plain(maxima[1], 5)})]


def agreed(rank: int, world: int) -> tuple[list[list[float]], dict[Any, int], dict[Any, int]]:
    tape = Tape()
    group = groups_of("data", [range(world)], tape)
    parts = parts_with(MAXIMA[rank])
    agree_maxima(parts, group)
    found = [module.max_logit_H.tolist() for module in heads(parts)]
    return found, dict(tape.bytes), dict(tape.counts)


def heads(parts: list[nn.Module]) -> list[Any]:
    return [module for part in parts for module in part.children()]


def test_maxima_of_all_layers_are_agreed_in_one_message():
    for found, sent, counts in run_ranks(2, agreed):
        assert found == LARGEST
        assert sent == {("qk_maxima", "data", "all_reduce"): 4 * 5}
        assert list(counts.values()) == [1]


def diverged(rank: int, world: int) -> list[float]:
    group = groups_of("data", [range(world)])
    parts = [
        Plain([[torch.nan, torch.inf, 5.0, -torch.inf], [3.0, 4.0, torch.nan, -torch.inf]][rank])
    ]
    agree_maxima(parts, group)
    return parts[0].max_logit_H.tolist()


def test_a_head_that_diverged_on_one_rank_has_diverged_on_all():
    inf = float("inf")
    assert run_ranks(2, diverged) == [[inf, inf, inf, -inf]] * 2


def loads(rank: int, world: int) -> tuple[list[list[int]], list[list[float]], dict[Any, int]]:
    tape = Tape()
    group = groups_of("data", [range(world)], tape)
    spec = Moe(experts=4, top_k=1, width=8, correction_bias=True, scores="sigmoid")
    routers = [Router(spec, 4, torch.device("cpu"), torch.float32) for _ in range(2)]
    for layer, router in enumerate(routers):
        router.load_E += torch.tensor([[3, 1, 0, 0], [0, 1, 3, 4]][rank]) * (layer + 1)
    agree_loads([nn.ModuleList(routers)], group)
    for router in routers:
        router.update_bias(0.5)
    found = [router.load_E.tolist() for router in routers]
    return found, [router.bias.tolist() for router in routers], dict(tape.bytes)


def test_biases_move_by_the_load_of_all_replicas():
    for found, biases, sent in run_ranks(2, loads):
        assert found == [[3, 2, 3, 4], [6, 4, 6, 8]]  # means 3 and 6
        assert biases == [[0, 0.5, 0, -0.5]] * 2
        assert sent == {("expert_loads", "data", "all_reduce"): 8 * 8}


def seen(rank: int, world: int) -> list[float]:
    group = groups_of("pipeline", [range(world)])
    own: list[list[Plain]] = [[Plain([1.0, 9.0, 4.0])], [], [Plain([5.0]), Plain([2.0])]]
    return population(own[rank], group).tolist()


def test_every_stage_knows_the_heads_of_all():
    for found in run_ranks(3, seen):
        assert sorted(one for one in found if one > -torch.inf) == [1, 2, 4, 5, 9]


@pytest.mark.parametrize("variant", ["per_head", "per_layer", "adaptive"])
def test_parts_are_clipped_as_the_whole_is(variant: str):
    """One process, the two chunks apart and together: the same heads by the same factors."""
    spec = QkClipSpec.model_validate({"variant": variant, "outlier": 1.5})
    together, apart = parts_with(LARGEST), parts_with(LARGEST)
    one = MuonClip(nn.ModuleList(together).named_parameters(), OptimizerSpec())
    clip(nn.ModuleList(together), one, spec)
    every = torch.cat([module.max_logit_H for module in heads(apart)])
    for part in apart:
        clip([part], MuonClip(part.named_parameters(), OptimizerSpec()), spec, every)
    for mine, theirs in zip(
        nn.ModuleList(together).parameters(), nn.ModuleList(apart).parameters(), strict=True
    ):
        assert torch.equal(mine, theirs)


def clipped(rank: int, world: int) -> tuple[list[Tensor], float, int]:
    """A step whose maxima differ between ranks, its masters sharded."""
    group = groups_of("data", [range(world)])
    parts = [part.to(torch.bfloat16) for part in parts_with(MAXIMA[rank])]
    for module in heads(parts):
        module.max_logit_H = module.max_logit_H.float()
    named = [list(part.named_parameters()) for part in parts]
    optimizer = Replicas(named, OptimizerSpec(lr=0.01, weight_decay=1.0), Holders(group, group))
    for part in range(2):
        optimizer.reduce(part)
    optimizer.step()
    agree_maxima(parts, group)
    report = clip(parts, optimizer, QkClipSpec())
    optimizer.publish()
    weights = [param.detach().clone() for part in parts for param in part.parameters()]
    return weights, report.least_gamma, report.heads


def test_sharded_masters_are_clipped_as_one_process_clips_them():
    parts = [part.to(torch.bfloat16) for part in parts_with(LARGEST)]
    model = nn.ModuleList(parts)
    optimizer = MuonClip(model.named_parameters(), OptimizerSpec(lr=0.01, weight_decay=1.0))
    for param in model.parameters():
        param.grad = torch.zeros(param.shape)
    optimizer.step()
    for module in heads(parts):
        module.max_logit_H = module.max_logit_H.float()
    report = clip(model, optimizer, QkClipSpec())
    assert (report.least_gamma, report.heads) == (0.2, 4)
    for weights, least, clipped_heads in run_ranks(2, clipped):
        assert (least, clipped_heads) == (report.least_gamma, report.heads)
        for mine, theirs in zip(weights, model.parameters(), strict=True):
            assert torch.equal(mine, theirs)
