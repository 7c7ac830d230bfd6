"""Reinforcement learning around a training run: weight updates, from host memory to the inference
engines, with the five verbs for them; rollouts (`twin.kinds.rollouts`); and whole iterations of
both with training between them (`twin.kinds.iteration`)."""

from __future__ import annotations

from twin.kinds.weight_update.compare import UpdateComparison, compare
from twin.kinds.weight_update.lower import lower
from twin.kinds.weight_update.plan import plan
from twin.kinds.weight_update.report import UpdateReport, report
from twin.kinds.weight_update.simulate import simulate
from twin.kinds.weight_update.types import UpdatePlan, UpdateProgram, UpdateTrace
from twin.kinds.weight_update.verdict import fitting, verdict

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
