"""Weights received are the weights sent, bit for bit, from every layout of the trainer to every
layout of the engines: all ranks in one process, buffers and all."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from reference.convert.config import tensors
from reference.inference.engine import Engine
from reference.model import Transformer
from reference.model.part import ModelPart, whole
from reference.optim.spec import OptimizerSpec
from reference.parallel.groups import Group
from reference.parallel.replicas import Holders, Replicas
from reference.parallel.timeline import Tape
from reference.weight_sync.layout import (
    HeldPart,
    LayoutSpec,
    RankLayout,
    buckets,
    buffers,
    full_set,
    held_by,
    holders,
    largest,
    read_layout,
    seats,
    shares,
    values,
)
from reference.weight_sync.needs import Target, needs_of, reload
from reference.weight_sync.ranks import Colocated, engine_target
from reference.weight_sync.sources import HostCopies
from tests.reference.inference import small as engines
from tests.reference.weight_sync.small import Neighbours, mesh, model, parts_of, served_part
from twin.errors import UsageError
from twin.spec.model import ModelSpec

TRAINED: list[dict[str, Any]] = [
    {"ranks": 1},
    {"ranks": 3},
    {"ranks": 2, "expert": 2},
    {"ranks": 2, "pipeline": 2},
    {"ranks": 4, "pipeline": 4},
    {"ranks": 4, "pipeline": 2, "expert": 2},
    {"ranks": 4, "expert": 2, "order": ["data", "expert", "tensor", "context", "pipeline"]},
    {"ranks": 8, "pipeline": 2, "expert": 2, "zero": 0},
    {"ranks": 2, "pipeline": 2, "virtual": 2, "schedule": "interleaved_1f1b"},
    {"ranks": 2, "pipeline": 2, "schedule": "dualpipe"},
    {"ranks": 3, "pipeline": 3, "layers": [0, 3, 1]},
]
SERVED = [
    "",
    "replicas=2",
    "expert=2",
    "expert=4,names=split",
    "pipeline=3",
    "pipeline=2,expert=2",
    "expert=2,tensor=2",
    "expert=4,tensor=2,pipeline=2,replicas=2,names=split",
    "expert=4,tensor=4",
]


@cache
def kept(trained: str, name: str = "latent") -> tuple[HostCopies, ...]:
    """The host copies of every owner, for a layout of the trainer as JSON."""
    spec, on = model(name), mesh(**json.loads(trained))
    units = full_set(spec, torch.float32)
    copies = tuple(HostCopies(own) for own in shares(units, holders(units, spec, on), on.ranks))
    for rank, host in enumerate(copies):
        host.gather(values(parts_of(spec, on, rank)), 1)
    return copies


def moved(
    copies: tuple[HostCopies, ...], spec: ModelSpec, layout: LayoutSpec, limit: int
) -> list[tuple[RankLayout, dict[str, Tensor]]]:
    """What every inference rank has when all buckets have come."""
    units = full_set(spec, torch.float32)
    space = buffers(3 * max(limit, largest(units)), limit, largest(units))
    made = buckets([tuple(host.units.values()) for host in copies], space.bytes)
    assert sum(len(one.units) for one in made) == len(units)
    assert all(one.bytes <= space.bytes for one in made)
    found = []
    for seat in seats(layout, spec):
        needs = needs_of(units, seat, tied=spec.tied_embeddings)
        own = {name: tensor.fill_(torch.nan) for name, tensor in needs.tensors().items()}
        halves = [torch.zeros(space.bytes, dtype=torch.uint8) for _ in range(2)]
        for number, bucket in enumerate(made):
            half = halves[number % 2][: bucket.bytes]
            half.copy_(copies[bucket.owner].part(bucket))
            reload(bucket, half, needs, own)
        found.append((seat, own))
    return found


@cache
def expected(held: HeldPart, ranks: int) -> dict[str, Tensor]:
    """The same made by the model itself, which nothing has moved."""
    neighbours: Any = Neighbours(ranks) if ranks > 1 else None
    place = held.experts.start // len(held.experts)
    part = ModelPart(held.first, held.end, held.embedding, held.head, place, neighbours)
    return served_part(model(), part)


def compare(trained: dict[str, Any], layout: LayoutSpec, limit: int) -> None:
    for seat, own in moved(kept(json.dumps(trained)), model(), layout, limit):
        wanted = expected(seat.held, layout.expert)
        assert own.keys() == wanted.keys()
        for name, tensor in own.items():
            assert torch.equal(tensor, wanted[name]), name


@pytest.mark.parametrize("trained", TRAINED, ids=json.dumps)
def test_every_pair_of_layouts_moves_every_bit(trained: dict[str, Any]) -> None:
    for served in SERVED:
        layout = read_layout(served)
        if layout.tensor == 1 and layout.names == "fused":
            compare(trained, layout, limit=2000)


@given(
    pipeline=st.sampled_from([1, 2, 3, 4]),
    expert=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([1, 2]),
    served=st.builds(
        LayoutSpec,
        replicas=st.sampled_from([1, 2]),
        pipeline=st.integers(1, 4),
        expert=st.sampled_from([1, 2, 4]),
    ),
    limit=st.integers(1, 12_000),
)
@settings(max_examples=16, deadline=None)
def test_any_layouts_and_any_buckets_move_every_bit(
    pipeline: int, expert: int, data: int, served: LayoutSpec, limit: int
) -> None:
    ranks = pipeline * expert * data
    compare({"ranks": ranks, "pipeline": pipeline, "expert": expert}, served, limit)


@pytest.mark.parametrize("served", SERVED)
def test_slices_and_split_names_add_up_to_the_whole_model(served: str) -> None:
    spec = model()
    layout = read_layout(served).model_copy(update={"names": "split"})
    truth = served_part(spec, whole(spec))
    parts = [part for one in tensors(spec) for part in one.parts]
    copies = kept(json.dumps({"ranks": 4, "pipeline": 2, "expert": 2}))
    ranks = moved(copies, spec, layout, 2000)
    per = layout.pipeline * layout.expert
    for first in range(0, len(ranks), per):
        instance = [own for _, own in ranks[first : first + per]]
        for part in parts:
            wanted: Any = part.of(truth[part.ours])
            found = [own[part.theirs] for own in instance if part.theirs in own]
            assert found, part.theirs
            if found[0].shape == wanted.shape:
                assert all(torch.equal(one, wanted) for one in found), part.theirs
                continue
            axis = 0 if found[0].shape[1:] == wanted.shape[1:] else 1
            assert torch.equal(torch.cat(found[: layout.tensor], axis), wanted), part.theirs


def test_ranks_that_share_a_fused_matrix_compute_its_block_together() -> None:
    spec = model()
    layout = read_layout("expert=2,tensor=2")
    ranks = [own for _, own in moved(kept('{"ranks": 2}'), spec, layout, 10**6)]
    truth = served_part(spec, whole(spec))
    x = torch.randn(5, spec.hidden, generator=torch.Generator().manual_seed(3))

    def block(own: dict[str, Tensor]) -> Tensor:
        gate, up = functional.linear(x, own["layers.0.ffn.up.weight"]).chunk(2, -1)
        return functional.linear(functional.silu(gate) * up, own["layers.0.ffn.down.weight"])

    # torch.testing takes seconds to load.
    together = sum((block(own) for own in ranks), torch.zeros(5, spec.hidden))
    assert torch.allclose(together, block(truth), atol=1e-6)


def test_a_head_that_is_the_embedding_travels_once() -> None:
    spec = model("grouped")
    units = full_set(spec, torch.float32)
    assert [unit.name for unit in units if unit.layer is None] == [
        "embedding.weight",
        "final_norm.gain",
    ]
    (_, last) = moved(kept('{"ranks": 2}', "grouped"), spec, read_layout("pipeline=2"), 4000)
    wanted = served_part(spec, whole(spec))
    assert torch.equal(last[1]["embedding.weight"], wanted["head.weight"])


@pytest.mark.parametrize("trained", TRAINED)
def test_what_ranks_are_said_to_hold_is_what_their_models_hold(trained: dict[str, Any]) -> None:
    spec, on = model(), mesh(**trained)
    units = full_set(spec, torch.float32)
    for rank in range(on.ranks):
        held = held_by(spec, on, rank)
        said = {unit.name for unit in units if any(one.holds(unit, tied=False) for one in held)}
        assert said == values(parts_of(spec, on, rank)).keys()


def test_weights_in_an_optimizers_flat_buffers_are_kept_as_they_are() -> None:
    (part,) = parts_of(model(), mesh(), 0)
    before = {name: tensor.clone() for name, tensor in part.state_dict().items()}
    alone = Group("data", (0,), 0, None, Tape())
    Replicas([list(part.named_parameters())], OptimizerSpec(), Holders(alone, alone))
    colocated = Colocated(model(), torch.float32)
    colocated.keep([part], version=1)
    target = Target({name: torch.zeros_like(tensor) for name, tensor in before.items()})
    colocated.update(target)
    for name, tensor in target.tensors.items():
        assert torch.equal(tensor, before[name]), name


def test_owners_are_equally_full_within_the_largest_tensor() -> None:
    spec, on = model(), mesh(4, expert=2)
    units = full_set(spec, torch.float32)
    sizes = [sum(one.bytes for one in own) for own in shares(units, holders(units, spec, on), 4)]
    assert max(sizes) - min(sizes) <= largest(units)


def test_an_engine_of_this_process_answers_with_the_weights_it_was_given() -> None:
    trainer, served = engines.model(1), Transformer(engines.model().spec)
    served.load_state_dict(engines.model(0).state_dict())
    engine = Engine(served, engines.VOCABULARY, engines.EngineSpec())
    colocated = Colocated(served.spec, torch.float32)
    colocated.keep([trainer], version=7)
    colocated.update(engine_target(engine))
    assert engine.weights == 7
    for name, tensor in served.state_dict().items():
        assert torch.equal(tensor, trainer.state_dict()[name]), name


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("experts=2", "TW620", "expert"),
        ("expert=two", "TW620", "expert"),
        ("expert=3", "TW621", "expert=2"),
        ("expert=2,tensor=4", "TW621", "tensor=2"),
        ("pipeline=9", "TW621", "at most 4"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_with_the_nearest(
    text: str, code: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        seats(read_layout(text), model())
    assert {one.code for one in refused.value.problems} == {code}
    assert any(hint in one.hint for one in refused.value.problems)
