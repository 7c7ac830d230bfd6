"""Small scenarios made from the shipped ones by overrides."""

from __future__ import annotations

from twin.loading import load
from twin.scenario import Scenario


def moe(nodes: int, stages: int, virtual: int, expert: int, *more: str) -> Scenario:
    """A small mixture-of-experts model in the image of K2 on `nodes` nodes of 8 H800, fully
    recomputed and with nothing on the host; four micro-batches per stage."""
    data = nodes * 8 // stages
    kind = "interleaved_1f1b" if virtual > 1 else "1f1b"
    return load(
        "kimi-k2-256xh800",
        [
            "model.layers=9",
            "model.moe.experts=16",
            "memory={recompute: [full], fp8_store: [], offload: []}",
            f"cluster.nodes={nodes}",
            f"parallel.pipeline={stages}",
            f"parallel.virtual={virtual}",
            f"parallel.expert={expert}",
            f"parallel.schedule={kind}",
            f"train.global_batch={data * stages * 4}seq",
            *more,
        ],
    )


def dense(nodes: int, stages: int, virtual: int, tensor: int, *more: str) -> Scenario:
    """A small GPT on `nodes` nodes of 8 A100, of bare kernels; four micro-batches per stage."""
    data = nodes * 8 // stages // tensor
    kind = "interleaved_1f1b" if virtual > 1 else "1f1b"
    return load(
        "gpt-175b-64xa100-full",
        [
            "software=null",
            "model=gpt-22b",
            "model.layers=12",
            f"cluster.nodes={nodes}",
            f"parallel.pipeline={stages}",
            f"parallel.virtual={virtual}",
            f"parallel.tensor={tensor}",
            f"parallel.schedule={kind}",
            f"train.global_batch={data * stages * 4}seq",
            *more,
        ],
    )
