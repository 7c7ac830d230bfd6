"""Random plans in the class of Kimi K2 on 32 to 512 nodes of 8 H800: any layout, sharding,
schedule and memory policy that fits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from twin.answers.nearest import document, replaced
from twin.engine import lower, plan
from twin.engine.program import Program
from twin.errors import ScenarioError
from twin.loading import load

NORMS = ["norms", "swiglu"]
K2 = {
    "kind": "interleaved_1f1b",
    "extra_warmup": 1,
    "overlap_all_to_all": True,
    "defer_weight_grad": True,
}
AXES: Mapping[str, list[Any]] = {
    "cluster.nodes": [32, 64, 96, 128, 192, 256, 384, 512],
    "parallel.pipeline": [4, 8, 16, 32],
    "parallel.virtual": [1, 1, 2, 4],
    "parallel.expert": [8, 16, 32, 64, 128, 192, 384],
    "parallel.tensor": [1, 1, 2, 4, 8],
    "parallel.context": [1, 1, 1, 2],
    "parallel.zero": [0, 1, 2, 3],
    "parallel.micro_batch": [1, 1, 2],
    "parallel.dispatcher": ["deepep", "alltoall"],
    "memory.recompute": [[*NORMS, "mla_up", "moe_down"], ["full"], [], NORMS],
    "memory.offload": [["activations"], [], ["optimizer"]],
    "parallel.schedule": [
        {"kind": "1f1b"},
        {"kind": "interleaved_1f1b"},
        K2,
        {"kind": "zb_h1"},
        {"kind": "dualpipe"},
    ],
}


def drawn(chance: random.Random) -> dict[str, Any]:
    """A value of every axis."""
    pick = {path: chance.choice(values) for path, values in AXES.items()}
    if pick["parallel.tensor"] > 1:
        pick["parallel.sequence_parallel"] = True
    return pick


def lowered(pick: Mapping[str, Any]) -> Program | None:
    """The plan with these values; None where there is none, or it does not fit."""
    try:
        found = plan(replaced(document(load("kimi-k2-2048xh800")), pick))
    except (ValueError, ScenarioError):
        return None
    return lower(found) if found.memory.fits else None


def programs(seed: int) -> Iterator[tuple[dict[str, Any], Program]]:
    """Plans that fit, with the values they were made from."""
    chance = random.Random(seed)
    while True:
        pick = drawn(chance)
        if (program := lowered(pick)) is not None:
            yield pick, program
