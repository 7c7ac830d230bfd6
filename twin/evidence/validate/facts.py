"""Rows that measured no step, kernel or transfer: throughput of whole runs and states of optimizers
are answered, the others say why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from twin.arch import parameters
from twin.arch.ops import Weights
from twin.evidence.validate.answer import Answer, blank, refused
from twin.evidence.validate.architecture import known, spec_of
from twin.evidence.validate.row import Row, Unreadable, number
from twin.evidence.validate.steps import STEP
from twin.evidence.validate.steps import answers as of_step
from twin.optimizers.adamw import AdamW
from twin.optimizers.base import MASTER_BYTES
from twin.optimizers.muon import Muon

STATES: Final = "optimizer_state_ratio"
HOUR: Final = 3600.0
TRILLION: Final = 1e12
WHY: Final = MappingProxyType(
    {
        "cost": "prices are what a planner writes under `cost`; nothing predicts them",
        "energy": "no scenario has power or energy",
        "fact": "facts and gains beside runs: inputs of the catalog, or no layout to play them on",
        "failure": "no failures or restarts: a step is played as if nothing broke",
        "hw_spec": "data of GPUs are inputs, in the catalog",
        "storage": "no file system: only what a weight update reads from is part of a scenario",
    }
)
"""Why rows of a category are not predicted."""


def unanswered(category: str) -> Callable[[Row], tuple[Answer, ...]]:
    """What answers rows of a category that nothing predicts."""

    def answers(row: Row) -> tuple[Answer, ...]:
        return (refused(row, "none", WHY[category]),)

    return answers


def throughput(row: Row) -> tuple[Answer, ...]:
    """GPU-hours per trillion tokens, as seconds of the step that they come to."""
    hours = number(row.metrics, "gpu_hours_per_trillion_tokens")
    if hours is None:
        why = "GPU-hours of a whole run, whose batch grew or whose layout is not told"
        return (refused(row, STEP, why),)
    if row.batch is None or row.sequence is None or row.gpus is None:
        return (refused(row, STEP, "the row does not say batch, sequence and GPUs"),)
    tokens = row.batch * row.sequence
    measured = hours * HOUR / row.gpus * tokens / TRILLION
    return tuple(
        replace(one, measured=measured, reason="") for one in of_step(row) if one.metric == STEP
    )


def optimizer(row: Row) -> tuple[Answer, ...]:
    """Muon's states over AdamW's, master weights not counted."""
    measured = number(row.metrics, "optimizer_memory_vs_adamw")
    if measured is None:
        raise Unreadable("nothing of an optimizer's states")
    if not known(row.model):
        raise Unreadable(f"the catalog has no model {row.model}")
    model = parameters(spec_of(row.model))
    weights = Weights(model.total, replicated_matrices=model.matrices, buffers=model.buffers)
    states = [sum(one.state_bytes(weights)) for one in (Muon(), AdamW())]
    master = MASTER_BYTES * (model.total - model.buffers)
    ratio = (states[0] - master) / (states[1] - master)
    found = replace(blank(row, STATES), predicted=ratio, measured=measured)
    return (replace(found, assumed=("embeddings, head and vectors by AdamW",)),)
