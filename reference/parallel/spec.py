"""The configuration section of a run on several ranks, in the words of a scenario."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from twin.schedules import Schedule
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.spec.axis import Axis
from twin.spec.base import Count, Exactly, Spec, Whole
from twin.spec.rank_order import AXES, RankOrder


class ParallelSpec(Spec):
    """How the work is cut over ranks. Replicas are what remains: ranks / pipeline. The experts of
    a stage are shared by `expert` of its ranks, and what remains of those holds copies."""

    pipeline: Count = Field(default=1, description="pipeline stages")
    virtual: Count = Field(default=1, description="chunks per stage")
    expert: Count = Field(default=1, description="ranks that share one set of experts")
    zero: Annotated[Literal[0, 1], Exactly] = Field(
        default=1, description="1: optimizer states are sharded over replicas"
    )
    schedule: Annotated[Schedule, Axis("twin.schedules")] = Field(
        default_factory=OneForwardOneBackward,
        description="the order in which stages run their passes",
    )
    layers: tuple[Whole, ...] | None = Field(
        default=None, description="layers per chunk, chunk-major; null: as even as can be"
    )
    order: RankOrder = Field(default=AXES, description="axes over ranks, fastest first")
