"""A model and its optimizer, saved by the ranks of one layout, are the same to those of another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

import reference.checkpoint.tensors  # noqa: F401  loaded once here, not in each rank
from reference.checkpoint.folder import Snapshot, load_tensors, newest, save
from reference.checkpoint.piece import Piece, Pieces, listed
from reference.config import RunSpec, load_run
from reference.model import Transformer
from reference.model.part import ModelPart, whole
from reference.optim.blocks import is_expert
from reference.parallel.groups import Group
from reference.parallel.replicas import Holders, Replicas
from reference.parallel.timeline import Tape
from reference.trainer.resume import fill, random_states
from reference.trainer.settings import weights_of
from tests.reference.parallel.ranks import run_ranks

RANKS = 4


@dataclass(frozen=True)
class Neighbours:
    """So many ranks share the experts; nothing is sent between them here."""

    size: int


@dataclass(frozen=True)
class Layout:
    """Four ranks: pipeline stages, and ranks of a stage that share its experts; the others of a
    stage are replicas. Experts are the fastest axis."""

    stages: int
    experts: int
    zero: Literal[0, 1] = 1

    def state(self, rank: int) -> tuple[dict[str, Pieces], dict[str, Pieces]]:
        """A model of zeros and its optimizer on one rank: what it has, and what it writes."""
        run, data = run_of(), RANKS // self.stages
        stage, index = divmod(rank, data)
        each = run.model.layers // self.stages
        begin, end = stage * each, stage * each + each
        neighbours: Any = Neighbours(self.experts) if self.experts > 1 else None
        expert, replica = index % self.experts, index // self.experts
        ends = (stage == 0, stage == self.stages - 1)
        part = ModelPart(begin, end, *ends, expert, neighbours)
        dense = Group("data", tuple(range(data)), index, None, Tape())
        others = tuple(range(data // self.experts))
        experts = Group("expert_data", others, replica, None, Tape())
        holders = Holders(dense, experts, self.zero, expert, self.experts)
        weights, optimizer = state_of(run, part, holders)
        first = {True: replica == 0, False: index == 0}
        written = {name: one for name, one in weights.items() if first[is_expert(name)]}
        return {**weights, **optimizer.pieces()}, {**written, **optimizer.pieces(once=True)}


def run_of() -> RunSpec:
    small = ["model.layers=4", "model.vocab=64", "model.hidden=32", "model.moe.width=16"]
    return load_run("nano", [*small, "train.precision=bf16"])


def state_of(run: RunSpec, part: ModelPart, holders: Holders) -> tuple[dict[str, Pieces], Replicas]:
    model = Transformer(run.model, part=part, dtype=torch.bfloat16)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = Replicas([list(model.named_parameters())], run.optimizer, holders)
    return {**weights_of(model)}, optimizer


def alone() -> dict[str, Pieces]:
    """All of a model and its optimizer."""
    run, group = run_of(), Group("data", (0,), 0, None, Tape())
    weights, optimizer = state_of(run, whole(run.model), Holders(group, group))
    return {**weights, **optimizer.pieces()}


def only(pieces: Pieces) -> Piece:
    (piece,) = listed(pieces)
    return piece


def carried(rank: int, count: int, path: Path, layouts: list[Layout]) -> None:
    """Read the checkpoint under each layout, and write it anew."""
    del count
    for number, layout in enumerate(layouts):
        own, written = layout.state(rank)
        found, _ = newest(path / str(number), dist.group.WORLD)
        assert found is not None
        fill(found, own, torch.device("cpu"), dist.group.WORLD)
        random = random_states(torch.device("cpu")) if rank == 0 else {}
        snapshot = Snapshot(number + 1, {**written, **random}, {}, {})
        save(path / str(number + 1), snapshot, 1, dist.group.WORLD)


def test_a_model_and_its_optimizer_pass_through_layouts_unchanged(tmp_path: Path) -> None:
    before, random = alone(), random_states(torch.device("cpu"))
    bits = torch.Generator().manual_seed(1)
    for pieces in before.values():
        tensor = only(pieces).tensor
        tensor.copy_(torch.randn(tensor.shape, generator=bits))
    save(tmp_path / "0", Snapshot(0, {**before, **random}, {}, {}), 1)
    layouts = [Layout(4, 1), Layout(2, 2, zero=0), Layout(1, 2)]
    run_ranks(RANKS, carried, tmp_path, layouts)
    after = alone()
    found, _ = newest(tmp_path / str(len(layouts)))
    assert found is not None
    torch.manual_seed(2)
    fill(found, after, torch.device("cpu"))
    assert found.shapes.keys() == before.keys() | random.keys()
    for name, pieces in before.items():
        assert torch.equal(only(after[name]).tensor, only(pieces).tensor), name
    assert torch.equal(torch.get_rng_state(), random["rng/cpu"].tensor)


def test_an_expert_rank_has_its_rows_of_the_stack(tmp_path: Path) -> None:
    name = "model/layers.2.ffn.experts.up"
    before = only(alone()[name])
    stack = before.tensor.view(before.shape)
    stack.copy_(torch.randn(stack.shape))
    save(tmp_path, Snapshot(0, {name: before}, {}, {}), 1)
    found, _ = newest(tmp_path)
    assert found is not None
    for rank, rows in enumerate(stack.chunk(RANKS)):
        own = only(Layout(1, RANKS).state(rank)[0][name])
        load_tensors(found, {name: own})
        assert torch.equal(own.tensor.view(rows.shape), rows)
