"""Programs made by hand: equal or given pass times, one message size, no closing work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from twin.collectives.traffic import Traffic
from twin.engine.link_map import Rates, Seats, Wiring, wire
from twin.engine.program import COMPUTE, EXPERT, Program, Role, StageMessage, Step, Template
from twin.schedules.base import Pass, Schedule

UNIT = Rates(nvlink=1.0, nic=1.0, pcie=1.0, dram=2.0)
"""Every link moves 1 byte/ns in one direction."""
FREE = StageMessage(0.0, "nic", 0)
"""A message that takes no time."""


def segment(duration: int, name: str = "forward") -> Template:
    """One compute step."""
    return (Step(name, COMPUTE, duration, ()),)


def with_exchange(duration: int, nic_bytes: float, name: str = "forward") -> Template:
    """Half the compute, an exchange over the NIC, the other half."""
    flow = Traffic(nic_bytes=nic_bytes)
    return (
        Step(name, COMPUTE, duration // 2, ()),
        Step("dispatch", EXPERT, 0, (0,), flow, "expert"),
        Step(name, COMPUTE, duration - duration // 2, (1,)),
    )


def by_hand(
    schedule: Schedule,
    shape: tuple[int, int, int],
    forward: Callable[[int], Template],
    backward: Callable[[int], Template],
    message: StageMessage = FREE,
    weights: Callable[[int], Template] = lambda _: segment(0, "backward_weight"),
) -> Program:
    """A Program of (stages, chunks per stage, micro-batches) whose passes are given per chunk; NIC
    and NVLink move 1 byte/ns. Where the schedule splits the backward, the given one is the input's
    half, and `weights` the other."""
    stages, virtual, microbatches = shape
    chunks = range(len(schedule.chunk_map(stages, virtual).part_of))
    passes: dict[tuple[Pass, int], Template] = {("F", c): forward(c) for c in chunks}
    passes |= {(kind, c): backward(c) for c in chunks for kind in ("B", "I")}
    passes |= {("W", c): weights(c) for c in chunks}
    return Program(
        roles=tuple(
            Role(f"stage {s}", s, 1, tuple(range(stages)), {"world": 0}) for s in range(stages)
        ),
        schedule=schedule,
        stages=stages,
        chunks_per_stage=virtual,
        microbatches=microbatches,
        passes=passes,
        receive=(),
        message=message,
        finish=tuple(() for _ in range(stages)),
        ready_after=tuple(() for _ in range(stages)),
        wiring=apart(stages, messages=message.link),
    )


def apart(
    roles: int,
    rates: Rates = UNIT,
    *,
    host: bool = False,
    messages: Literal["nvlink", "nic"] | None = "nic",
) -> Wiring:
    """The links of so many roles, each one rank on a node of its own."""
    seats = Seats(range(roles), range(roles), switch=1, socket=1, node=1, pod=1)
    return wire(seats, rates, host=host, messages=messages)
