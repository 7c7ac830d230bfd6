"""An engine from what a planner wrote, or what is wrong with it."""

from __future__ import annotations

from typing import Any

from twin.arch.ops import Shape
from twin.arch.stack import uneven
from twin.errors import Problem, ScenarioError
from twin.inference.types import Engine
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec
from twin.spec.inference import EngineSpec
from twin.spec.model import ModelSpec


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
    """The model as an engine holds it: with redundant experts, without prediction modules."""
    changed: dict[str, Any] = {"mtp_layers": 0}
    if model.moe is not None and spec.redundant_experts:
        experts: dict[str, Any] = {"experts": model.moe.experts + spec.redundant_experts}
        changed["moe"] = model.moe.model_copy(update=experts)
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
    held, width = served(spec, model), spec.gpus if model.moe else 1
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
