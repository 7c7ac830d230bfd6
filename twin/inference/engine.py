"""The nouns of inference: an engine that can be built, and what one pass of it takes.

An engine from what a planner wrote, or what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

from twin.arch.kernels import ELEMENT, FP8
from twin.arch.ops import Shape
from twin.arch.stack import uneven
from twin.errors import Problem, ScenarioError
from twin.inference.load import fullest
from twin.network.placement import Placement
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec
from twin.spec.inference import EngineSpec
from twin.spec.model import ModelSpec

Cause = Literal["arithmetic", "memory", "launches", "tensor", "expert", "host"]

CAUSES: Final[dict[Cause, str]] = {
    "arithmetic": "FLOP of the tensor cores",
    "memory": "bandwidth of the device memory",
    "launches": "launches of kernels",
    "tensor": "collectives of tensor ranks",
    "expert": "expert all-to-all that nothing hides",
    "host": "the host, between passes and for each sequence",
}
"""What takes the time of a pass, in words."""

INT4: Final = 0.5 + 2 / 32
"""Bytes of a weight in four bits, with its part of a 16-bit scale of 32 weights."""


@dataclass(frozen=True)
class Engine:
    """One copy of a model on `spec.gpus` GPUs of a cluster, its parts checked (`build.engine`).

    `model` has the redundant experts among its experts, and no modules that predict further tokens.
    """

    spec: EngineSpec
    model: ModelSpec
    cluster: ClusterSpec
    calibration: CalibrationSpec

    @property
    def groups(self) -> int:
        """Groups of tensor ranks, each with requests of its own."""
        return self.spec.gpus // self.spec.tensor

    @property
    def sliced(self) -> bool:
        """Whether tensor ranks share the tokens between their matrices, as trainers do, or sum
        whole results, as frameworks that serve do."""
        dense_server = self.spec.software is not None and self.model.moe is None
        return self.spec.tensor > 1 and self.spec.experts == "spread" and not dense_server

    @property
    def expert_ranks(self) -> int:
        """GPUs over which experts are spread; 1: none travels."""
        return self.spec.gpus if self.model.moe and self.spec.experts == "spread" else 1

    @cached_property
    def expert_load(self) -> float:
        """Rows of the GPU with the fullest experts over those of the mean."""
        if self.spec.expert_load is not None:
            return self.spec.expert_load
        return fullest(_experts(self.model), self.expert_ranks, self.spec.redundant_experts)

    @property
    def drafts(self) -> int:
        """Tokens of a sequence that a decode pass verifies beside its own."""
        return self.spec.speculation.drafts if self.spec.speculation else 0

    @property
    def without_drafts(self) -> Engine:
        """The same engine, which gives one token a pass."""
        return replace(self, spec=self.spec.model_copy(update={"speculation": None}))

    @property
    def cache_element(self) -> float:
        """Bytes of a cached number, its part of a scale included."""
        return FP8 if self.spec.cache == "fp8" else ELEMENT

    @cached_property
    def everyone(self) -> Placement:
        """The GPUs of the engine, which share the experts."""
        return self._placed(self.spec.gpus)

    @cached_property
    def sharers(self) -> Placement:
        """The GPUs of one group of tensor ranks."""
        return self._placed(self.spec.tensor)

    def _placed(self, size: int) -> Placement:
        inside = min(size, self.cluster.node.gpus)
        pod = min(size, self.cluster.fabric.nodes_per_leaf * self.cluster.node.gpus)
        return Placement(size, inside, pod)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass of one group takes: seconds by cause, which sum to `seconds`; `hidden` are
    those of the all-to-all that run beside kernels."""

    causes: Mapping[Cause, float]
    hidden: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from the begin of the pass to its end."""
        return sum(self.causes.values())

    @property
    def bound(self) -> Cause:
        """What takes most of it."""
        return max(self.causes, key=lambda cause: self.causes[cause])

    def each(self, tokens: float) -> Pass:
        """What it takes for each of so many tokens that it gives a sequence."""
        if tokens == 1:
            return self
        causes: dict[Cause, float] = {one: each / tokens for one, each in self.causes.items()}
        return Pass(causes, self.hidden / tokens)


def engine(
    spec: EngineSpec,
    model: ModelSpec,
    cluster: ClusterSpec,
    calibration: CalibrationSpec,
    path: str = "engine",
) -> Engine:
    """The engine, under a profile of its own or the one given; `path` is where its section is
    written.

    Raises `ScenarioError` where the model cannot be cut so, or the cluster has no such GPUs.
    """
    problems = wrong(spec, model, cluster, path)
    if problems:
        raise ScenarioError(problems)
    return Engine(spec, served(spec, model), cluster, spec.calibration or calibration)


def served(spec: EngineSpec, model: ModelSpec) -> ModelSpec:
    """The model as an engine holds it: with redundant experts, without prediction modules. Of
    experts that are cut it has a part of each: one GPU's layer is a layer of narrow ones."""
    changed: dict[str, Any] = {"mtp_layers": 0}
    if model.moe is not None:
        own: dict[str, Any] = {"experts": model.moe.experts + spec.redundant_experts}
        if spec.experts == "cut":
            own["width"] = model.moe.width // spec.tensor
            if model.moe.shared_width is not None:
                own["shared_width"] = model.moe.shared_width // spec.tensor
        changed["moe"] = model.moe.model_copy(update=own)
    return model.model_copy(update=changed)


def _experts(model: ModelSpec) -> int:
    return model.moe.experts if model.moe else 0


def wrong(spec: EngineSpec, model: ModelSpec, cluster: ClusterSpec, path: str) -> list[Problem]:
    """Why there can be no such engine; empty where there can."""
    found: list[Problem] = []
    gpus, node = spec.gpus, cluster.node

    def refuse(key: str, message: str, fix: str) -> None:
        found.append(Problem("TW180", f"{path}.{key}", message, fix))

    if gpus > cluster.gpus:
        message = f"an engine of {gpus} GPUs is more than the cluster's {cluster.gpus}"
        refuse("gpus", message, f"write at most {cluster.gpus}")
    elif gpus > node.gpus and gpus % node.gpus:
        message = f"{gpus} GPUs are no whole number of nodes of {node.gpus}"
        refuse("gpus", message, f"write {gpus // node.gpus * node.gpus}")
    if gpus % spec.tensor or (spec.tensor > node.gpus and spec.tensor % node.gpus):
        message = f"groups of {spec.tensor} GPUs do not fill {gpus} GPUs in nodes of {node.gpus}"
        refuse("tensor", message, "write a number that divides both")
    if spec.precision == "fp8" and node.gpu.fp8_dense is None:
        refuse("precision", f"{node.gpu.name} has no FP8", "write `precision: bf16`")
    if model.moe and spec.experts == "cut":
        if spec.tensor != gpus:
            message = f"experts that are cut over {spec.tensor} GPUs fill no engine of {gpus}"
            refuse("experts", message, f"write `tensor: {gpus}`, or `experts: spread`")
        if model.moe.width % spec.tensor:
            message = f"{spec.tensor} GPUs do not divide experts of width {model.moe.width}"
            refuse("tensor", message, "write a number that divides it")
    held = served(spec, model)
    width = spec.gpus if model.moe and spec.experts == "spread" else 1
    # A group's rows are padded to whole rows per rank, so the sequence divides by itself.
    shape = Shape(1, spec.tensor, spec.tensor, width, sequence_parallel=spec.tensor > 1)
    for name in uneven(held, shape):
        key = "gpus" if name.startswith("model.moe.experts") else "tensor"
        degree = width if key == "gpus" else spec.tensor
        what = f"the {_experts(held)} experts of a layer" if key == "gpus" else name
        message = f"{degree} GPUs do not divide {what}"
        more = " or add `redundant_experts`" if key == "gpus" else ""
        refuse(key, message, f"write a number that divides it{more}")
    return found
