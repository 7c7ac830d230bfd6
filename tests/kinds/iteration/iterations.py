"""Iterations of reinforcement learning small enough for tests: Moonlight on four nodes of H800."""

from __future__ import annotations

from collections.abc import Sequence

import twin
from twin.kinds.iteration.report import IterationReport
from twin.kinds.iteration.types import IterationPlan, IterationTrace
from twin.loading import load

NAME = "kimi-k2-rl-256xh800"
SMALL = (
    "model=moonlight-16b-a3b",
    "cluster.nodes=4",
    "parallel.pipeline=2",
    "parallel.virtual=1",
    "parallel.schedule=1f1b",
    "parallel.expert=8",
    "parallel.context=1",
    "memory.offload=[]",
    "memory.recompute=[full]",
    "train.sequence=8192tok",
    "train.global_batch=64seq",
    "rl.rollout.engine.gpus=8",
    "rl.rollout.engine.redundant_experts=0",
    "rl.rollout.requests=128",
    "rl.rollout.iterations=2",
    "rl.rollout.partial=null",
    "rl.rollout.prompt={kind: constant, each: 500}",
    "rl.rollout.written={kind: log_normal, mean: 2000, sigma: 0.8, longest: 7000}",
    "rl.iteration.update.replica={gpus: 8}",
    "rl.iteration.update.free_memory=6GiB",
    "rl.iteration.update.bucket=2GiB",
)
ALIKE = "rl.rollout.written={kind: constant, each: 1548}"
"""Four sequences of 2,048 tokens fill a micro-batch."""
APART = ("rl.iteration.mode=disaggregated", "rl.iteration.rollout_nodes=2")
BESIDE = ("rl.iteration.mode=one_step_off", "rl.iteration.rollout_nodes=2")


def planned(*sets: str) -> IterationPlan:
    return twin.plan(load(NAME, [*SMALL, *sets]))


def played(*sets: str) -> IterationTrace:
    return twin.simulate(planned(*sets))


def reported(*sets: str) -> IterationReport:
    plan = planned(*sets)
    return twin.report(plan, twin.simulate(plan))


def seconds(*sets: str) -> float:
    trace = played(*sets)
    return trace.length_ns / 1e9 / len(trace.rounds)


def lengths(*sets: str) -> Sequence[int]:
    return [one.length_ns for one in played(*sets).rounds]
