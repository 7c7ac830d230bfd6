"""Small scenarios made by hand: one dense and one mixture-of-experts model on small nodes, changed
section by section."""

from __future__ import annotations

from typing import Any

from twin.arch.ops import Item, Layer, Op, Weights, Work
from twin.optimizers.adamw import AdamW
from twin.planning.types import Chunk
from twin.scenario import Scenario
from twin.schedules import SCHEDULES
from twin.schedules.base import Schedule

Changes = dict[str, Any]

LINK = {"bandwidth": "100GB/s", "efficiency": 0.8, "latency": "1us"}

MOE = {"experts": 16, "top_k": 2, "width": 64, "shared_experts": 1, "first_dense_layers": 1}


VISION = {"layers": 2, "hidden": 32, "heads": 4, "ffn": "gelu", "width": 64, "values": 12}


def schedule(kind: str) -> Schedule:
    """A schedule with its defaults."""
    return SCHEDULES[kind](kind=kind)


def scenario(
    model: Changes | None = None,
    parallel: Changes | None = None,
    train: Changes | None = None,
    memory: Changes | None = None,
    cluster: Changes | None = None,
    calibration: Changes | None = None,
) -> Scenario:
    """Eight dense layers on two nodes of eight GPUs, each section changed as given; `cluster` takes
    `nodes`, `gpus` and `fp8_dense`."""
    size: Changes = {"nodes": 2, "gpus": 8} | (cluster or {})
    kind = (parallel or {}).get("schedule", "1f1b")
    return Scenario.model_validate(
        {
            "schema": 1,
            "name": "small",
            "model": _model() | (model or {}),
            "cluster": _cluster(**size),
            "parallel": (parallel or {}) | {"schedule": schedule(kind)},
            "memory": memory or {},
            "train": {
                "tokens": "1G",
                "global_batch": "4096tok",
                "sequence": "64tok",
                "optimizer": AdamW(),
            }
            | (train or {}),
            "calibration": _calibration() | (calibration or {}),
        }
    )


def _model() -> Changes:
    return {
        "name": "small",
        "layers": 8,
        "hidden": 128,
        "vocab": 512,
        "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 16},
        "ffn": {"kind": "swiglu", "width": 256},
    }


def _cluster(nodes: int, gpus: int, fp8_dense: str | None = None) -> Changes:
    gpu = {
        "name": "small-gpu",
        "memory": "80GiB",
        "memory_bandwidth": "2TB/s",
        "bf16_dense": "300TFLOP/s",
        "fp8_dense": fp8_dense,
        "sms": 100,
        "power": {
            "max": "700W",
            "idle": "100W",
            "compute": 1,
            "communication": 0.5,
            "waiting": 0.2,
        },
        "calibration": "small",
        "reserve": [{"name": "context", "bytes": "1GiB"}, {"name": "nccl", "bytes": "2GiB"}],
    }
    host = {
        "memory": "1TiB",
        "memory_bandwidth_per_socket": "200GB/s",
        "sockets": 2,
        "pcie": LINK,
    }
    node = {
        "name": "small-node",
        "gpu": gpu,
        "gpus": gpus,
        "nvlink": LINK,
        "nic": LINK,
        "host": host,
    }
    fabric = {
        "name": "small-fabric",
        "kind": "rail_fat_tree",
        "nodes_per_leaf": 4,
        "spines": 2,
        "efficiency": 0.9,
        "hop_latency": "1us",
    }
    return {"node": node, "nodes": nodes, "fabric": fabric}


def _calibration() -> Changes:
    return {
        "name": "small",
        "gpu": "small-gpu",
        "software": "none",
        "date": "2026-01-01",
        "gemm": 0.7,
        "grouped_gemm": 0.6,
        "attention_forward": 0.5,
        "attention_backward": 0.4,
        "bandwidth": 0.8,
        "launch": "2us",
        "dispatch": "0s",
    }


def op(name: str, saved: float = 0.0, output: float = 0.0) -> Op:
    return Op(name, "gemm", Work(), Work(), saved=saved, output=output)


def block(*items: Item, weights: Weights | None = None, input_bytes: float = 10.0) -> Layer:
    return Layer("dense", items, weights or Weights(), input_bytes)


def chunks_of(layers: list[list[Layer]], stages: int) -> list[Chunk]:
    return [
        Chunk(index, index % stages, tuple(own), sum((one.weights for one in own), Weights()), 0)
        for index, own in enumerate(layers)
    ]
