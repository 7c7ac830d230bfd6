"""What interrupts a run, and what its software and its owner do about it: failures by component,
checkpoints, restarts, spare nodes, slow nodes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, Strict, ValidationInfo, WithJsonSchema, field_validator

from twin.errors import FieldError
from twin.spec.base import (
    BytesPerSecond,
    Count,
    Duration,
    Flag,
    Part,
    Ratio,
    Share,
    Span,
    Spec,
    Whole,
    written_as,
)

PerHour = Annotated[float, Strict(), Field(ge=0, le=1)]
"""Failures of one component in an hour."""


class ObservedSpec(Spec):
    """The run whose interruptions were counted."""

    gpus: Count
    """GPUs of the run"""
    nodes: Count
    """nodes of the run"""
    time: Span
    """how long it was watched"""


class CauseSpec(Spec):
    """One cause of interruptions. How often it strikes is written in one of three ways: counted in
    the run that was observed, as a mean time between failures, or as a rate."""

    name: str
    """what reports call it"""
    per: Literal["gpu", "nic", "node", "job"] = "gpu"
    """what there are more of in a larger run; job: as often in any run. Every GPU has one NIC"""
    count: Whole | None = None
    """interruptions counted in the run that was observed"""
    mtbf: Span | None = None
    """mean time between failures of one component"""
    rate: PerHour | None = None
    """failures per component and hour"""
    planned: Flag = False
    """known in advance: a checkpoint is saved before, and nothing has to be found"""
    replaces_node: Flag = False
    """the node leaves for repair, and a spare takes its place"""


class FailuresSpec(Spec):
    """How often each cause interrupts a run, as somebody observed it."""

    name: str
    """what reports call the observation"""
    gpu: str
    """the GPU of the run that was observed"""
    observed: ObservedSpec | None = None
    """the run in which causes were counted; null: none was counted"""
    # After `observed`, without which nothing can be counted.
    causes: tuple[CauseSpec, ...]
    """what interrupts a run"""

    @field_validator("causes")
    @classmethod
    def _say_each_rate_once(
        cls, causes: tuple[CauseSpec, ...], info: ValidationInfo
    ) -> tuple[CauseSpec, ...]:
        for cause in causes:
            written = [key for key in ("count", "mtbf", "rate") if getattr(cause, key) is not None]
            if len(written) != 1:
                said = " and ".join(f"`{key}`" for key in written) or "nothing"
                message = f"the cause `{cause.name}` says how often it strikes with {said}"
                raise FieldError("TW171", message, "write one of `count`, `mtbf`, `rate`")
            if cause.count is not None and info.data.get("observed", ...) is None:
                message = f"the cause `{cause.name}` was counted, and no run was observed"
                fix = "add `observed: {gpus: 16384, nodes: 2048, time: 54d}`, or write `mtbf`"
                raise FieldError("TW172", message, fix)
        return causes


class CheckpointStorageSpec(Spec):
    """Where checkpoints are durable."""

    per_node: BytesPerSecond
    """what one node writes, or reads"""
    total: BytesPerSecond
    """what the storage takes from all nodes together"""


def _auto(written: Any) -> Any:
    return None if written == "auto" else written


_DURATION = cast(dict[str, Any], written_as("seconds").json_schema)
Every = Annotated[
    Duration | None,
    BeforeValidator(_auto),
    WithJsonSchema({"anyOf": [_DURATION, {"enum": ["auto"]}, {"type": "null"}]}),
]
"""A duration, or `auto`."""


class CheckpointSpec(Spec):
    """Saving what a restart needs: weights and optimizer states, each once, an equal part by each
    rank of a stage."""

    every: Every = None
    """work between two saves; auto: by Daly's formula, at least a step, and no more often than the
    storage keeps up with"""
    save: Literal["asynchronous", "synchronous"] = "asynchronous"
    """asynchronous: training goes on once the copy on the host is complete, and the checkpoint
    counts once it is in the storage; synchronous: training waits for both"""
    overhead: Duration = 0.0
    """for which a save blocks training beside its copies"""
    storage: CheckpointStorageSpec
    """where checkpoints are durable"""


class RestartSpec(Spec):
    """What passes between an interruption and the first step after it, in this order."""

    name: str
    """what reports call the stack"""
    detect: Duration
    """until somebody knows, and knows which node; nothing where it was planned"""
    reschedule: Duration
    """until every node of the new job is there"""
    initialise: Duration
    """processes, groups of ranks, buffers, data loaders"""
    load: Duration | None = None
    """reading the checkpoint; null: its bytes through the storage"""
    warm_up: Duration
    """what the first steps take longer than others, all together"""


class SparesSpec(Spec):
    """Nodes beside those that train. Where none is left, the job waits for a repair."""

    nodes: Whole
    """spare nodes; nobody's cost counts them"""
    repair: Span
    """until a node that left is a spare one"""


class StragglersSpec(Spec):
    """Slow nodes. Training is synchronous, so the slowest node sets the pace of all. The nodes are
    drawn anew at every restart."""

    share: Part
    """share of the nodes that are slow"""
    slowdown: Ratio
    """how many times longer a step takes on such a node"""


class GoodputSpec(Spec):
    """How much of its time the run makes progress, in spite of failures."""

    failures: FailuresSpec
    """what interrupts the run, and how often"""
    checkpoint: CheckpointSpec
    restart: RestartSpec
    """what an interruption costs beside lost work"""
    spares: SparesSpec | None = None
    """null: a good node is always there at once"""
    stragglers: StragglersSpec | None = None
    """null: no node is slow"""
    over: Span | None = None
    """how long a time is simulated; null: the whole run"""
    target_fraction: Share = 0.9
    """effective share of the time that `largest_loss_seconds` keeps"""
    seeds: Annotated[Count, Field(ge=10, le=10_000)] = 100
    """runs that are simulated; of fewer than ten nobody can tell an 80 % interval"""
    seed: Whole = 0
    """the first of them; the same gives the same answer"""
