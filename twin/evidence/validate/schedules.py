"""Rows of schedules: bubbles of zero-bubble orders, played.

Qi et al. 2023 (arXiv:2401.10241), table 5: of a step's length what the stages with most work do not
spend on passes; collectives and messages that a stage waits for count as bubble.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from twin.engine import lower, simulate
from twin.errors import TwinError
from twin.evidence.validate.answer import Answer, blank, refused
from twin.evidence.validate.play import scenario_of
from twin.evidence.validate.row import Row, Unreadable, count
from twin.evidence.validate.training import express
from twin.planning import plan

BUBBLE: Final = "bubble_fraction"
ORDERS: Final = MappingProxyType({"ZB_H1": "zb_h1", "ZB_H2": "zb_h2"})
"""Orders by their schedule."""
RUN: Final = "ZB-1p"
"""What training rows of the source call a run of such an order."""


def answers(row: Row) -> tuple[Answer, ...]:
    """The bubble of every order at every count of micro-batches."""
    try:
        found = tuple(_answers(row))
    except Unreadable as why:
        return (refused(row, BUBBLE, str(why)),)
    return found or (refused(row, BUBBLE, "formulas of bubbles, without times of passes"),)


def _answers(row: Row) -> Iterator[Answer]:
    counts: list[Any] = row.metrics.get("microbatches") or []
    for order in ORDERS:
        for microbatches, measured in zip(counts, row.metrics.get(order, ()), strict=False):
            if not isinstance(microbatches, int) or not isinstance(measured, float):
                raise Unreadable(f"`{order}` has no bubble per count of micro-batches")
            yield replace(
                blank(row, BUBBLE),
                id=f"{row.id}[{order}, {microbatches} micro-batches]",
                predicted=_bubble(row, order, microbatches),
                measured=measured,
            )


def _bubble(row: Row, order: str, microbatches: int) -> float:
    """Share of the step that the busiest stage waits for others."""
    batch = microbatches * (count(row.fields, "mbs") or 1)
    layout = {**row.layout, "schedule": RUN}
    expressed = express(Row({**row.fields, "gbs": batch, "parallelism": layout}, row.models))
    parallel = {**expressed.tree["parallel"], "schedule": {"kind": ORDERS[order]}}
    one = replace(expressed, tree={**expressed.tree, "parallel": parallel})
    try:
        trace = simulate(lower(plan(scenario_of(one))))
    except TwinError as error:
        raise Unreadable(error.problems[0].message) from None
    waits = (stage["bubble"] + stage["exposed_pipeline"] for stage in trace.breakdown_ns)
    return min(waits) / trace.step_ns
