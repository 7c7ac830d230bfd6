"""An iteration of reinforcement learning: rollouts, switch, scores, training, weight update, wake,
on GPUs in turns or on GPUs of their own."""

from __future__ import annotations

from twin.kinds.iteration.batch import batch
from twin.kinds.iteration.plan import plan
from twin.kinds.iteration.report import IterationReport, batch_words, fitting, report, verdict
from twin.kinds.iteration.simulate import length_of, simulate
from twin.kinds.iteration.types import (
    CAUSES,
    PHASES,
    WORKS,
    Batch,
    Fit,
    IterationPlan,
    IterationTrace,
    Round,
    Span,
)

__all__ = [
    "CAUSES",
    "PHASES",
    "WORKS",
    "Batch",
    "Fit",
    "IterationPlan",
    "IterationReport",
    "IterationTrace",
    "Round",
    "Span",
    "batch",
    "batch_words",
    "fitting",
    "length_of",
    "plan",
    "report",
    "simulate",
    "verdict",
]
