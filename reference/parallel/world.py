"""The ranks of a run, and what each holds of the model.

The ranks joined: process groups, from what a launcher put into the environment.

`torchrun` and its like set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Without them a run has
one rank, and nothing is joined.

A rank that finds another rank gone says so and ends at once, so that the launcher can end the rest.
Its own threads may hang in transfers that nobody will answer.

What one rank holds of the model: the parts of its chunks, with its share of their experts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Final

import torch
import torch.distributed as dist

from reference.model import Transformer
from reference.model.part import ModelPart
from reference.parallel.groups import Group
from reference.parallel.mesh import KINDS, Kind, Mesh, ParallelSpec, mesh_of
from reference.parallel.messages import CHANNELS, Route
from reference.parallel.overlap import ExpertExchange
from reference.parallel.timeline import Tape, clock_of
from twin.errors import Problem, UsageError
from twin.spec.model import ModelSpec


def stage_of(
    spec: ModelSpec,
    mesh: Mesh,
    rank: int,
    exchange: ExpertExchange | None,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> Mapping[int, Transformer]:
    """The parts of a rank by global chunk, in the order of the model's parts, without values.

    Raises UsageError where layers or experts cannot be cut like that.
    """
    parts = cut(spec, mesh.spec)
    expert = mesh.expert_index(rank) if exchange else 0
    chunk_map, stage = mesh.chunk_map, mesh.stage(rank)
    own = [chunk for chunk, place in enumerate(chunk_map.stage_of) if place == stage]
    found: dict[int, Transformer] = {}
    for chunk in sorted(own, key=lambda one: chunk_map.part_of[one]):
        first, end = parts[chunk_map.part_of[chunk]]
        part = ModelPart(
            first,
            end,
            embedding=chunk_map.before[chunk] is None,
            head=chunk_map.after[chunk] is None,
            expert_rank=expert,
            exchange=exchange,
        )
        found[chunk] = Transformer(spec, device=device, dtype=dtype, part=part)
    return found


def cut(spec: ModelSpec, parallel: ParallelSpec) -> tuple[tuple[int, int], ...]:
    """First layer and the one behind the last, of each part of the model. Raises UsageError where
    the layers that were written do not add up, or experts do not divide."""
    if spec.moe is not None and spec.moe.experts % parallel.expert:
        message = f"{spec.moe.experts} experts cannot be shared by {parallel.expert} ranks"
        raise UsageError([Problem("TW293", "parallel.expert", message, "choose a divisor")])
    parts = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).parts
    if spec.tied_embeddings and parts > 1:
        message = f"{spec.name} uses its embedding as its head, on the first and on the last chunk"
        fix = "set `parallel.pipeline` and `parallel.virtual` to 1, or untie them"
        raise UsageError([Problem("TW295", "model.tied_embeddings", message, fix)])
    layers = parallel.layers
    if layers is None:
        each, more = divmod(spec.layers, parts)
        layers = tuple(each + (part < more) for part in range(parts))
    if len(layers) != parts or sum(layers) != spec.layers:
        message = f"{list(layers)} are {sum(layers)} layers in {len(layers)} chunks"
        fix = f"write {parts} numbers that add up to {spec.layers}, or null"
        raise UsageError([Problem("TW293", "parallel.layers", message, fix)])
    ends = list(accumulate(layers))
    return tuple(zip([0, *ends[:-1]], ends, strict=True))


_HOST: Final = torch.device("cpu")
PATIENCE: Final = timedelta(minutes=10)
"""How long a rank waits for others before it takes them to be lost. A rank that dies is noticed at
once, since its connections close; this is for one that hangs."""


@dataclass(frozen=True)
class World:
    """One rank of a run, and those that it speaks with."""

    rank: int
    mesh: Mesh
    groups: Mapping[Kind, Group]
    route: Route
    tape: Tape

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.mesh.ranks

    @property
    def first(self) -> bool:
        """Whether this rank speaks for all: to people, and to disk."""
        return self.rank == 0

    @property
    def data_index(self) -> int:
        """Which share of a step's text is its own."""
        return self.mesh.data_index(self.rank)


def environment() -> tuple[int, int]:
    """Rank and number of ranks as the launcher says; 0 of 1 without one."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def joined(spec: ParallelSpec, microbatches: int, device: torch.device) -> Iterator[World]:
    """The world of a run whose steps have so many micro-batches over all ranks.

    Raises UsageError where the ranks cannot be cut as the section says.
    """
    rank, ranks = environment()
    mesh = mesh_of(spec, ranks, microbatches)
    if ranks == 1:
        yield world_of(mesh, rank, device)
        return
    began = not dist.is_initialized()
    if began:
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield world_of(mesh, rank, device)
    finally:
        if began:
            dist.destroy_process_group()


def world_of(mesh: Mesh, rank: int, device: torch.device = _HOST) -> World:
    """The groups of a rank, where all ranks of a process group call this alike."""
    tape = Tape(clock_of(device))
    groups: dict[Kind, Group] = {}
    for kind in KINDS:
        ranks = mesh.members(kind, rank)
        groups[kind] = Group(kind, ranks, ranks.index(rank), _handle(ranks), tape)
    ranks = mesh.members("pipeline", rank)
    handles = {one: _handle(ranks) for one in CHANNELS}
    return World(rank, mesh, groups, Route(mesh.stage(rank), ranks, mesh.chunk_map, handles), tape)


def _handle(ranks: tuple[int, ...]) -> dist.ProcessGroup | None:
    """torch's group of some ranks, which only they make; None for one alone."""
    if len(ranks) == 1:
        return None
    made = dist.new_group(list(ranks), timeout=PATIENCE, use_local_synchronization=True)
    assert isinstance(made, dist.ProcessGroup), "this rank is one of them"
    return made


LOST: Final = 6
"""Exit code."""
_SIGNS: Final = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "application timeout",
    "socket closed",
)
"""What gloo, NCCL and the store say of a peer that is gone."""


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another rank is gone."""
    text = str(error).lower()
    known = isinstance(error, dist.DistError | RuntimeError)
    return environment()[1] > 1 and known and any(sign in text for sign in _SIGNS)


def lost(error: BaseException) -> str:
    """The same for people."""
    rank, ranks = environment()
    first = str(error).strip().splitlines()[0]
    return (
        f"rank {rank} of {ranks}: another rank is gone, so this one ends ({first}); start again "
        "with `--resume` to go on from the last checkpoint"
    )


def left(code: int) -> int:
    """The exit code; of several ranks the process ends here with it."""
    if environment()[1] > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
