"""The root of what a planner writes: the sections, with the axes (schedules, optimizers) whose members declare their
own. `twin.loading.load` makes one from a file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from twin.optimizers import Optimizer
from twin.schedules import Schedule
from twin.spec.base import Spec, Tokens
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec
from twin.spec.cost import CostSpec
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec

Axis = Literal["tensor", "context", "expert", "data", "pipeline"]


class ParallelSpec(Spec):
    """How the work is cut over ranks. Data parallelism is what remains: GPUs / (tensor x pipeline)."""

    pipeline: int = Field(default=1, gt=0)
    virtual: int = Field(default=1, gt=0)
    expert: int = Field(default=1, gt=0)
    tensor: int = Field(default=1, gt=0)
    context: int = Field(default=1, gt=0)
    zero: Literal[0, 1] = 1
    micro_batch: int = Field(default=1, gt=0, description="sequences per micro-batch")
    sequence_parallel: bool = False
    schedule: Schedule
    layers: tuple[int, ...] | None = Field(default=None, description="layers per chunk, chunk-major; None: balanced by time")
    order: tuple[Axis, ...] = ("tensor", "context", "expert", "data", "pipeline")


class RoutingSpec(Spec):
    """How tokens spread over experts."""

    kind: Literal["balanced"] = "balanced"


class TrainSpec(Spec):
    """The training run: sizes, optimizer, numbers and kernels."""

    tokens: Tokens
    global_batch: Tokens
    sequence: Tokens
    optimizer: Optimizer
    precision: Literal["bf16"] = "bf16"
    attention_kernel: Literal["flash", "unfused"] = "flash"
    routing: RoutingSpec = RoutingSpec()


class Scenario(Spec):
    """One run, fully resolved: catalog names are replaced by their parts."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    model: ModelSpec
    cluster: ClusterSpec
    parallel: ParallelSpec
    memory: MemorySpec = MemorySpec()
    train: TrainSpec
    cost: CostSpec | None = None
    calibration: CalibrationSpec
