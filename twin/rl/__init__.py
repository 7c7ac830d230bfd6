"""Reinforcement learning around a training run: weight updates, from host memory to the inference
engines, with the five verbs for them; rollouts (`twin.rl.rollout`); and whole iterations of both
with training between them (`twin.rl.iteration`)."""

from __future__ import annotations

from twin.rl.compare import UpdateComparison, compare
from twin.rl.lower import lower
from twin.rl.plan import plan
from twin.rl.report import UpdateReport, report
from twin.rl.simulate import simulate
from twin.rl.types import UpdatePlan, UpdateProgram, UpdateTrace
from twin.rl.verdict import fitting, verdict

__all__ = [
    "UpdateComparison",
    "UpdatePlan",
    "UpdateProgram",
    "UpdateReport",
    "UpdateTrace",
    "compare",
    "fitting",
    "lower",
    "plan",
    "report",
    "simulate",
    "verdict",
]
