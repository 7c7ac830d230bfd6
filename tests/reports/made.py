"""A run small enough to work out on paper: four GPUs, two stages, one dense layer on each.

The model has hidden 8, 2 layers, 2 heads of 4, a GELU block of width 32 and 100 words. Matmul
parameters per token are 2 x (4 x 8 x 8 + 2 x 8 x 32) + 8 x 100 = 2,336; causal attention over 16
tokens is 2 x 16 x 8 FLOP forward per layer and token. Model FLOP per token = 6 x 2,336 + 3 x 2 x (2
x 16 x 8) = 15,552."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from twin.arch.ops import Layer, Op, Weights, Work
from twin.arch.recompute import ATTENTION_CORE
from twin.engine.trace import Spans, Trace
from twin.network.placement import Placement
from twin.planning.types import Chunk, Memory, Mesh, Plan, StageMemory, Warning
from twin.scenario import Scenario

FLOP_PER_TOKEN = 15_552
STEP_NS = 2_000_000_000
ROWS = (
    {"compute": 1_200_000_001, "exposed_expert": 299_999_999, "bubble": 500_000_000},
    {
        "compute": 1_200_000_002,
        "exposed_data": 99_999_998,
        "optimizer": 200_000_000,
        "bubble": 500_000_000,
    },
)
CORE = min(ATTENTION_CORE)
GIB = 2**30


def scenario(**changes: Any) -> Scenario:
    """The scenario; `changes` are merged into its sections."""
    link = {"bandwidth": "50GB/s", "efficiency": 0.9, "latency": "1us"}
    gpu = {
        "name": "paper",
        "memory": "100GiB",
        "memory_bandwidth": "1GB/s",
        "bf16_dense": "1GFLOP/s",
        "sms": 1,
        "calibration": "paper",
        "reserve": [{"name": "context", "bytes": "10GiB"}],
    }
    host = {"memory": "1TB", "memory_bandwidth_per_socket": "1GB/s", "sockets": 1, "pcie": link}
    node = {"name": "paper", "gpu": gpu, "gpus": 4, "nvlink": link, "nic": link, "host": host}
    fabric = {
        "name": "paper",
        "kind": "rail_fat_tree",
        "nodes_per_leaf": 1,
        "spines": 1,
        "efficiency": 0.9,
        "hop_latency": "1us",
    }
    sections: dict[str, Any] = {
        "schema": 1,
        "name": "paper",
        "model": {
            "name": "paper",
            "layers": 2,
            "hidden": 8,
            "vocab": 100,
            "ffn": {"kind": "gelu", "width": 32},
            "attention": {"kind": "gqa", "heads": 2, "kv_heads": 2, "head_dim": 4},
        },
        "cluster": {"node": node, "nodes": 1, "fabric": fabric},
        "parallel": {"pipeline": 2, "schedule": "1f1b"},
        "memory": {"recompute": []},
        "train": {
            "tokens": "1280tok",
            "global_batch": "128tok",
            "sequence": "16tok",
            "optimizer": "adamw",
        },
        "cost": {"gpu_hour": "2USD"},
        "calibration": {
            "name": "paper",
            "gpu": "paper",
            "software": "none",
            "date": "2026-11-20",
            "gemm": 0.5,
            "grouped_gemm": 0.5,
            "attention_forward": 0.5,
            "attention_backward": 0.5,
            "bandwidth": 0.5,
            "launch": "1us",
            "dispatch": "0s",
        },
    }
    for section, change in changes.items():
        known = sections.get(section) or {}
        sections[section] = {**known, **change} if isinstance(change, dict) else change
    return Scenario.model_validate(sections)


def layer(kind: Any, gemm: float, core: float = 0.0) -> Layer:
    """A layer whose forward is a GEMM and an attention core of so many FLOP; both halves of
    backward cost the same."""
    items = (
        Op("up", "gemm", Work(gemm), Work(gemm), Work(gemm)),
        Op(CORE, "attention", Work(core), Work(core), Work(core)),
    )
    return Layer(kind, items, Weights(), 0.0)


def stage(index: int, gib: float) -> StageMemory:
    """A stage whose peak is half parameters, a quarter gradients, a quarter activations."""
    size = gib * GIB
    categories = {
        "parameters": size / 2,
        "gradients": size / 4,
        "activations": size / 4,
        "logits": 0.0,
    }
    return StageMemory(index, categories, size, "forward of micro-batch 1, chunk 0", 2)


def plan(gib: tuple[float, float] = (60.0, 40.0), **changes: Any) -> Plan:
    """The plan: embedding and a dense layer on stage 0, a dense layer and the head on stage 1,
    peaks of so many GiB."""
    made = scenario(**changes)
    chunks = (
        Chunk(0, 0, (layer("embedding", 5), layer("dense", 1000, 200)), Weights(), 0),
        Chunk(1, 1, (layer("dense", 1000, 200), layer("head", 800)), Weights(), 1),
    )
    chunks = tuple(
        replace(one, layers=tuple(replace(own, policy=made.memory) for own in one.layers))
        for one in chunks
    )
    return Plan(
        scenario=made,
        mesh=Mesh(
            tensor=1, expert=1, data=2, pipeline=2, gpus_per_node=4, order=made.parallel.order
        ),
        chunks=chunks,
        microbatches=4,
        placements={
            "data": Placement(2, 2),
            "tensor": Placement(1, 1),
            "expert": Placement(1, 1),
            "pipeline": Placement(2, 2),
        },
        memory=Memory((stage(0, gib[0]), stage(1, gib[1])), 100.0 * GIB, {"context": 10.0 * GIB}),
        warnings=(Warning("made", "Made by hand."),),
    )


def trace(rows: tuple[dict[str, int], ...] = ROWS, **changes: Any) -> Trace:
    """The trace of a step with these breakdown rows, one per role."""
    whole = np.zeros(0, np.int64)
    part = np.zeros(0, np.int32)
    spans = Spans(part, np.zeros(0, np.int8), part, part, part, whole, whole)
    made: dict[str, Any] = {
        "spans": spans,
        "names": (),
        "roles": tuple(f"stage {i}" for i in range(len(rows))),
        "step_ns": sum(rows[0].values()),
        "breakdown_ns": rows,
        "link_bytes": {"nic": 3e6, "nvlink": 0.0},
        "link_busy": {"nic": 0.25, "nvlink": 0.0},
        "events": 42,
        "played_microbatches": 4,
        "microbatches": 4,
    }
    return Trace(**{**made, **changes})
