"""The axes over which the ranks of a run are counted, and their order."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator

from twin.errors import FieldError

MeshAxis = Literal["tensor", "context", "expert", "data", "pipeline"]
AXES: Final[tuple[MeshAxis, ...]] = get_args(MeshAxis)
"""The usual order, fastest first: Megatron-LM's."""


def _every_axis_once(order: tuple[MeshAxis, ...]) -> tuple[MeshAxis, ...]:
    if sorted(order) != sorted(AXES):
        message = "the order must name every axis exactly once"
        raise FieldError("TW017", message, f"write [{', '.join(AXES)}]")
    return order


RankOrder = Annotated[tuple[MeshAxis, ...], AfterValidator(_every_axis_once)]
"""Axes over ranks, fastest first."""
