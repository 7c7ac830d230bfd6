"""Who speaks with whom in a run: its groups, its pipelines, and where its chunks live.

Ranks are counted as the trainer counts them, which is how the simulator does
(`twin.planning.mesh`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from twin.errors import Problem, UsageError
from twin.planning.mesh import group_numbers, ranks_of_stages, stages_agree
from twin.planning.types import Mesh
from twin.schedules import ChunkMap, Schedule
from twin.spec.axis import members

_ORDER: Final = ("tensor", "context", "expert", "data", "pipeline")
_Degree = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class _Section:
    """What a layout needs of the section `parallel`."""

    pipeline: _Degree = 1
    virtual: _Degree = 1
    expert: _Degree = 1
    schedule: str | dict[str, Any] = "1f1b"
    order: tuple[str, ...] = _ORDER


_SECTION = TypeAdapter(_Section)


@dataclass(frozen=True)
class Layout:
    """The ranks of a run."""

    mesh: Mesh
    schedule: Schedule
    virtual: int

    @cached_property
    def chunk_map(self) -> ChunkMap:
        """Where the chunks live."""
        return self.schedule.chunk_map(self.mesh.pipeline, self.virtual)

    @cached_property
    def stage(self) -> tuple[int, ...]:
        """The stage of every rank."""
        return tuple(self._of_ranks(self._places[0]))

    @cached_property
    def pipelines(self) -> tuple[tuple[int, ...], ...]:
        """For every rank the ranks of its pipeline, by stage."""
        stages, place = ranks_of_stages(self.mesh), self._of_ranks(self._places[1])
        columns: list[list[int]] = stages.T.tolist()
        return tuple(tuple(columns[at]) for at in place)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The stage and the place in it, by stage and place."""
        return np.indices((self.mesh.pipeline, self.mesh.stage_ranks), np.int64)

    @cached_property
    def groups(self) -> Mapping[str, NDArray[np.int64]]:
        """For every kind of group, the number of the one that a rank belongs to."""
        found = {kind: self._mirrored(kind, one) for kind, one in group_numbers(self.mesh).items()}
        numbers = {kind: np.array(self._of_ranks(one)) for kind, one in found.items()}
        return {**numbers, "world": np.zeros(self.mesh.ranks, np.int64)}

    def _mirrored(self, kind: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Replicas of a part of the model that lies on two stages are the ranks of both."""
        if self.mesh.copies == 1 or kind not in ("data", "expert_data"):
            return numbers
        middle = self.mesh.pipeline // 2
        return np.concatenate([numbers[:middle], numbers[:middle][::-1]])

    def _of_ranks(self, by_stage: NDArray[np.int64]) -> list[int]:
        """What is known by stage and place in it, by rank."""
        found = np.empty(self.mesh.ranks, np.int64)
        found[ranks_of_stages(self.mesh)] = by_stage
        return found.tolist()


def layout(parallel: Mapping[str, Any], ranks: int, microbatches: int, where: str) -> Layout:
    """The layout of so many ranks under a section `parallel` of a trainer, with so many
    micro-batches per step and pipeline; `where` it was read.

    Raises `UsageError` where it is none.
    """
    try:
        section = _SECTION.validate_python(dict(parallel))
        schedule = _schedule(section.schedule)
        for one in schedule.problems(section.pipeline, section.virtual, microbatches):
            raise _refused(where, f"its schedule cannot have run: {one.message}")
        mesh = Mesh(
            tensor=1,
            expert=section.expert,
            data=ranks // section.pipeline,
            pipeline=section.pipeline,
            gpus_per_node=ranks,
            order=section.order,
            copies=schedule.chunk_map(section.pipeline, section.virtual).copies,
        )
    except (ValidationError, KeyError) as error:
        raise _refused(where, f"its section `parallel` is none: {_said(error)}") from None
    if mesh.ranks != ranks or mesh.stage_ranks % mesh.expert:
        degrees = f"pipeline {mesh.pipeline} and expert {mesh.expert}"
        raise _refused(where, f"{ranks} ranks cannot be laid out with {degrees}")
    if sorted(mesh.order) != sorted(_ORDER) or not stages_agree(mesh):
        raise _refused(where, f"the order of its axes, {list(mesh.order)}, puts a rank nowhere")
    return Layout(mesh, schedule, section.virtual)


def _schedule(written: str | dict[str, Any]) -> Schedule:
    """The schedule of a name, or of a section with its settings."""
    section = {"kind": written} if isinstance(written, str) else written
    member = members("twin.schedules", Schedule)[section.get("kind", "")]
    found = member.model_validate(section)
    assert isinstance(found, Schedule)
    return found


def _said(error: ValidationError | KeyError) -> str:
    if isinstance(error, KeyError):
        return f"there is no schedule {error.args[0]!r}"
    one = error.errors()[0]
    return f"`{'.'.join(map(str, one['loc']))}`: {one['msg']}"


def _refused(where: str, message: str) -> UsageError:
    return UsageError([Problem("TW333", where, message, "its header is not what a trainer wrote")])
