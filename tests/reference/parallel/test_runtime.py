"""A step on several ranks has the loss and the gradients of one process, whatever the schedule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from reference.model import Transformer
from reference.model.transformer import initialize
from reference.parallel.mesh import ParallelSpec, mesh_of
from reference.parallel.messages import Messages
from reference.parallel.overlap import ExpertExchange, Pace, Turns
from reference.parallel.runtime import Runtime
from reference.parallel.world import stage_of, world_of
from tests.reference.parallel.ranks import run_ranks
from twin.errors import UsageError
from twin.loading import load_part
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec

MICROBATCHES = 8
"""Over all ranks."""
INTERLEAVED = {"kind": "interleaved_1f1b"}
K2 = INTERLEAVED | {"extra_warmup": 1, "overlap_all_to_all": True, "defer_weight_grad": True}

ZB, DUAL = {"kind": "zb_h1"}, {"kind": "dualpipe"}
ZB_H2 = {"kind": "zb_h2", "post_validation": False}


def custom(*orders: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "custom", "version": 1, "stages": len(orders), "orders": orders, **fields}


FOUND_2 = custom("0F*2 [0F 0I 0W] (0I 0W)*2", "(1F 1I)*2 [1F 1I 1W] 1W*2", chunks=1)
FOUND_4 = custom(
    "0F*3 [0F 0I 0W] (0I 0W)*3",
    "1F*3 1I [1F 1I 1W] (1W 1I)*2 1W",
    "2F*2 2I 2F 2I [2F 2I 2W] 2W 2I 2W*2",
    "(3F 3I)*3 [3F 3I 3W] 3W*3",
    chunks=1,
)
FOUND_PAIRS = custom(
    "0F*2 2F*2 0F*2 2I 2W 2F&2B 2F&0B 0B (2I 2W)*2 0B*2",
    "1F*2 3F 3F&3B 1F&3I 1F&1B 3F&1B 3F&3I 3B 1B 1I 3W 1W 3W",
    chunks=2,
)
"""Orders that the search found: 2 and 4 stages, and pairs of 2 x 2 chunks."""
V = custom("[0F 3F 3I 3W 0I 0W]", "[1F 2F 2B 1B]", chunks=2, placement="v")
LAYOUTS: list[tuple[int, dict[str, Any]]] = [
    (1, {"virtual": 2, "schedule": K2}),
    (2, {"pipeline": 2, "layers": [1, 3]}),
    (2, {"pipeline": 2, "schedule": FOUND_2}),
    (4, {"pipeline": 2, "expert": 2, "virtual": 2, "schedule": FOUND_PAIRS}),
    (4, {"pipeline": 2, "expert": 2, "schedule": DUAL}),
]
FURTHER: list[tuple[int, dict[str, Any]]] = [
    (2, {"pipeline": 2, "schedule": ZB}),
    (4, {"pipeline": 2, "expert": 2, "virtual": 2, "schedule": K2}),
    (4, {"pipeline": 4, "schedule": FOUND_4}),
    (2, {"pipeline": 2, "virtual": 2, "schedule": V}),
    (1, {}),
    (2, {}),
    (2, {"pipeline": 2}),
    (2, {"pipeline": 2, "schedule": {"kind": "gpipe"}}),
    (2, {"pipeline": 2, "schedule": DUAL}),
    (2, {"pipeline": 2, "virtual": 2, "schedule": K2}),
    (2, {"expert": 2}),
    (2, {"pipeline": 2, "schedule": ZB_H2}),
    (2, {"pipeline": 2, "virtual": 2, "schedule": INTERLEAVED}),
    (4, {"expert": 2}),
    (4, {"pipeline": 4, "schedule": ZB_H2 | {"weights_late": 3}}),
    (4, {"pipeline": 4, "schedule": DUAL}),
    (4, {"pipeline": 2, "expert": 2, "schedule": ZB}),
]
"""Parts of the others, or alike."""


def model() -> ModelSpec:
    spec = load_part("models", "kimi-k2-nano").spec
    assert isinstance(spec, ModelSpec)
    return spec.model_copy(update={"vocab": 64})


def batches() -> list[tuple[Tensor, Tensor]]:
    drawn = torch.Generator().manual_seed(1)
    made = [torch.randint(0, 64, (2, 25), generator=drawn) for _ in range(MICROBATCHES)]
    return [(one[:, :-1].contiguous(), one[:, 1:].contiguous()) for one in made]


def alone(spec: ModelSpec) -> tuple[float, dict[str, Tensor]]:
    whole = Transformer(spec, dtype=torch.float64)
    initialize(whole, 0)
    losses = [whole.loss(*batch) / MICROBATCHES for batch in batches()]
    sum(losses[1:], losses[0]).backward()
    found = {name: weight.grad for name, weight in whole.named_parameters()}
    return float(sum(one.item() for one in losses)), {
        k: v for k, v in found.items() if v is not None
    }


def one_rank(
    rank: int, ranks: int, spec: ModelSpec, layout: dict[str, Any], policy: MemorySpec
) -> tuple[float, dict[str, Tensor]]:
    """This rank's part of the loss, and the gradients that it holds, summed over replicas."""
    mesh = mesh_of(ParallelSpec.model_validate(layout), ranks, MICROBATCHES)
    world = world_of(mesh, rank)
    turns = Turns(world.tape)
    shared = world.groups["expert"].size > 1
    exchange = ExpertExchange(world.groups["expert"], turns) if shared else None
    parts = stage_of(spec, mesh, rank, exchange, device=torch.device("cpu"), dtype=torch.float64)
    for part in parts.values():
        initialize(part, 0, part.part.first_expert(spec))
    policies = policy.of_chunks(mesh.chunk_map.stage_of)
    runtime = Runtime(parts, Messages(world.route, world.tape), turns, policies, Pace())
    own = batches()[world.data_index :: mesh.data]
    orders = mesh.spec.schedule.order(mesh.spec.pipeline, mesh.spec.virtual, len(own))
    like = torch.empty(2, 24, spec.hidden, dtype=torch.float64)
    done: list[int] = []
    outcome = runtime.step(orders, own, like, MICROBATCHES, done.append)
    assert sorted(done) == sorted(parts)
    found = {
        name: weight.grad
        for part in parts.values()
        for name, weight in part.named_parameters()
        if weight.grad is not None
    }
    for name, gradient in found.items():
        kind = "expert_data" if "experts" in name else "data"
        world.groups[kind].all_reduce(gradient, "gradients")
    first = {name: mesh.expert_index(rank) for name in found if "experts" in name}
    return outcome.loss, {f"{k}@{first.get(k, '')}": v for k, v in found.items()}


def assert_equal(ranks: int, layout: dict[str, Any], policy: MemorySpec | None = None) -> None:
    spec = model()
    loss, gradients = alone(spec)
    found = run_ranks(ranks, one_rank, spec, layout, policy or MemorySpec())
    assert sum(one for one, _ in found) == pytest.approx(loss, rel=1e-12)
    seen: set[str] = set()
    for _, part in found:
        for key, value in part.items():
            name, _, place = key.partition("@")
            whole = gradients[name]
            if place:
                whole = whole[int(place) * len(value) : (int(place) + 1) * len(value)]
            seen.add(name)
            scale = gradients[name].abs().max()
            assert (value - whole).abs().max() <= 1e-12 * scale, (name, value.shape)
    assert seen == gradients.keys()


def test_a_schedule_whose_stages_update_apart_is_refused_and_the_fix_named() -> None:
    spec = ParallelSpec.model_validate({"pipeline": 2, "schedule": {"kind": "zb_h2"}})
    with pytest.raises(UsageError) as caught:
        mesh_of(spec, 2, MICROBATCHES)
    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == ("TW296", "parallel.schedule.post_validation")
    assert problem.hint == "set post_validation to false"


@pytest.mark.parametrize(
    ("ranks", "layout"),
    [*LAYOUTS, *(pytest.param(*one, marks=pytest.mark.slow) for one in FURTHER)],
    ids=str,
)
def test_loss_and_gradients_are_those_of_one_process(ranks: int, layout: dict[str, Any]) -> None:
    assert_equal(ranks, layout)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({"recompute": ["full"]}, marks=pytest.mark.slow),
        {
            "recompute": ["norms", "swiglu", "mla_up"],
            "offload": ["activations"],
            "by_stage": [{}, {"recompute": ["full"], "offload": []}],
        },
    ],
    ids=str,
)
def test_recomputation_inside_stages_changes_nothing(policy: dict[str, Any]) -> None:
    layout = {"pipeline": 2, "expert": 2, "virtual": 2, "schedule": K2}
    assert_equal(4, layout, MemorySpec.model_validate(policy))
