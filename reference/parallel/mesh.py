"""The section `parallel` of a run: which rank is where, and which ranks speak with each other.

The same ranks are counted twice, as in Megatron-LM's parallel folding (arXiv:2504.14960): for dense
weights over data and pipeline; for experts over expert, their replicas (in data's place) and
pipeline. The first axis of the order is the fastest, so that expert ranks are neighbours.

A bidirectional schedule holds each part of the model on a stage and on its mirror: replicas are
then the ranks of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from twin.errors import Problem, UsageError
from twin.schedules.base import ChunkMap, Schedule
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.spec.axis import Axis
from twin.spec.base import Count, Exactly, Spec, Whole
from twin.spec.rank_order import AXES, RankOrder


class ParallelSpec(Spec):
    """How the work is cut over ranks. Replicas are what remains: ranks / pipeline. The experts of
    a stage are shared by `expert` of its ranks, and what remains of those holds copies."""

    pipeline: Count = 1
    """Pipeline stages."""
    virtual: Count = 1
    """Chunks per stage."""
    expert: Count = 1
    """Ranks that share one set of experts."""
    zero: Annotated[Literal[0, 1], Exactly] = 1
    """1: optimizer states are sharded over replicas."""
    schedule: Annotated[Schedule, Axis("twin.schedules")] = Field(
        default_factory=OneForwardOneBackward
    )
    """The order in which stages run their passes."""
    layers: tuple[Whole, ...] | None = None
    """Layers per chunk, chunk-major; null: as even as can be."""
    order: RankOrder = AXES
    """Axes over ranks, fastest first."""


Grid = Literal["dense", "experts"]
"""The two ways in which the ranks are counted."""
Kind = Literal["data", "expert", "expert_data", "pipeline", "world"]
KINDS: Final[tuple[Kind, ...]] = ("data", "expert", "expert_data", "pipeline", "world")
"""`data`: who holds the same dense weights; `expert`: who shares one set of experts; `expert_data`:
who holds the same experts; `pipeline`: one rank of every stage, in the order of stages."""


@dataclass(frozen=True)
class Mesh:
    """The ranks of a run."""

    spec: ParallelSpec
    ranks: int

    @property
    def data(self) -> int:
        """Ranks of a stage: they read different text."""
        return self.ranks // self.spec.pipeline

    @property
    def chunk_map(self) -> ChunkMap:
        """Where the chunks live."""
        return self.spec.schedule.chunk_map(self.spec.pipeline, self.spec.virtual)

    def stage(self, rank: int) -> int:
        """The pipeline stage of a rank."""
        return self._place(rank, "dense")["pipeline"]

    def stages_agree(self, rank: int) -> bool:
        """Whether a rank is on one stage, however it is counted."""
        return self.stage(rank) == self._place(rank, "experts")["pipeline"]

    def data_index(self, rank: int) -> int:
        """Which of the ranks of its stage it is: the text that it reads."""
        return self._place(rank, "dense")["data"]

    def expert_index(self, rank: int) -> int:
        """Which share of a layer's experts it holds."""
        return self._place(rank, "experts")["expert"]

    def members(self, kind: Kind, rank: int) -> tuple[int, ...]:
        """The ranks of its group, in the order that collectives have; itself among them."""
        return next(group for group in self.groups(kind) if rank in group)

    def groups(self, kind: Kind) -> tuple[tuple[int, ...], ...]:
        """All groups of a kind, each rank in one."""
        match kind:
            case "world":
                return (tuple(range(self.ranks)),)
            case "data":
                return self._mirrored(self._along("dense", "data"))
            case "expert":
                return self._along("experts", "expert")
            case "expert_data":
                return self._mirrored(self._along("experts", "data"))
            case "pipeline":
                return self._along("dense", "pipeline")

    def _along(self, grid: Grid, along: str) -> tuple[tuple[int, ...], ...]:
        found: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.ranks):
            place = self._place(rank, grid)
            key = tuple(number for axis, number in place.items() if axis != along)
            found.setdefault(key, []).append(rank)
        return tuple(map(tuple, found.values()))

    def _mirrored(self, groups: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        """Groups of mirrored stages joined, where each part of the model is there twice."""
        if self.chunk_map.copies == 1:
            return groups
        last = self.spec.pipeline - 1
        found: dict[tuple[int, ...], tuple[int, ...]] = {}
        for group in groups:
            stage = self.stage(group[0])
            mirror = tuple(self.members("pipeline", rank)[last - stage] for rank in group)
            found[tuple(sorted(group + mirror))] = ()
        return tuple(found)

    def _place(self, rank: int, grid: Grid) -> dict[str, int]:
        """Coordinates of a rank on every axis."""
        sizes, place = self._sizes(grid), {}
        for axis in self.spec.order:
            rank, place[axis] = divmod(rank, sizes[axis])
        return place

    def _sizes(self, grid: Grid) -> dict[str, int]:
        one = {"tensor": 1, "context": 1, "pipeline": self.spec.pipeline}
        if grid == "dense":
            return {**one, "expert": 1, "data": self.data}
        return {**one, "expert": self.spec.expert, "data": self.data // self.spec.expert}


def mesh_of(spec: ParallelSpec, ranks: int, microbatches: int) -> Mesh:
    """The mesh of a run whose steps have so many micro-batches over all ranks.

    Raises UsageError where degrees do not divide, or the schedule cannot run the shape.
    """
    problems = [*_degrees(spec, ranks), *_shares(spec, ranks, microbatches), *_norm(spec)]
    if problems:
        raise UsageError(problems)
    mesh = Mesh(spec, ranks)
    apart = [rank for rank in range(ranks) if not mesh.stages_agree(rank)]
    if apart:
        message = f"rank {apart[0]} would be on different stages for dense weights and experts"
        fix = "write `pipeline` last in `parallel.order`"
        raise UsageError([Problem("TW292", "parallel.order", message, fix)])
    return mesh


def _degrees(spec: ParallelSpec, ranks: int) -> list[Problem]:
    if ranks % spec.pipeline:
        message = f"{ranks} ranks are no whole number of pipelines of {spec.pipeline} stages"
        fix = f"start {_multiples(ranks, spec.pipeline)} ranks, or change `parallel.pipeline`"
        return [Problem("TW290", "parallel.pipeline", message, fix)]
    data = ranks // spec.pipeline
    if data % spec.expert:
        message = f"{data} ranks of a stage cannot share experts in groups of {spec.expert}"
        fix = f"nearest expert: {_divisors_beside(data, spec.expert)}"
        return [Problem("TW290", "parallel.expert", message, fix)]
    return []


def _shares(spec: ParallelSpec, ranks: int, microbatches: int) -> list[Problem]:
    data = max(1, ranks // spec.pipeline)
    if microbatches % data:
        message = f"{microbatches} micro-batches of a step cannot be shared out to {data} replicas"
        fix = f"set `train.accumulate` to {_multiples(microbatches, data)}"
        return [Problem("TW291", "train.accumulate", message, fix)]
    obstacles = spec.schedule.problems(spec.pipeline, spec.virtual, microbatches // data)
    return [Problem("TW291", one.field, one.message, one.hint) for one in obstacles]


def _norm(spec: ParallelSpec) -> list[Problem]:
    if not spec.schedule.staggered:
        return []
    message = "stages of the trainer agree on the gradient norm before any of them updates"
    fix = "set post_validation to false"
    return [Problem("TW296", "parallel.schedule.post_validation", message, fix)]


def _multiples(number: int, of: int) -> str:
    below = number // of * of
    return " or ".join(str(one) for one in (below, below + of) if one)


def _divisors_beside(number: int, wanted: int) -> str:
    divisors = [one for one in range(1, number + 1) if number % one == 0]
    below = [one for one in divisors if one < wanted][-1:]
    above = [one for one in divisors if one > wanted][:1]
    return " or ".join(map(str, below + above))
