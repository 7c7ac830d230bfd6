"""Checkpoints of a phase, and what it reads."""

from __future__ import annotations

from math import ceil
from typing import Final

from twin.goodput.saving import checkpoint
from twin.kinds.phases.types import PhaseSaves
from twin.planning.types import Plan
from twin.reports import Report
from twin.scenario import Scenario
from twin.spec.data import bytes_per_token

DEFAULT_EVERY: Final = 1800.0
"""Seconds of work between two checkpoints where the scenario has no section `goodput`. Assumed:
"most teams checkpoint every 15-30 minutes" (NVIDIA, developer.nvidia.com/blog,
cut-checkpoint-costs-with-about-30-lines-of-python-and-nvidia-nvcomp); a large
batch's step alone may take two."""
EVERY_ASSUMED: Final = (
    "assumed: every 30 min (15 to 30 min are usual); a section goodput says it, or finds the best"
)
EVERY_KNOWN: Final = "goodput.checkpoint"
_AS_MEGATRON: Final = (
    "datasheet: ids as Megatron-LM's indexed data sets store them "
    "(megatron/core/datasets/indexed_dataset.py)"
)


def saves(plan: Plan, report: Report, seconds: float) -> PhaseSaves:
    """Checkpoints of a phase that trains for so long without failures: one after each interval of
    work, and one as it ends; none where nothing is trained."""
    every = DEFAULT_EVERY if report.goodput is None else report.goodput.saves.every_seconds
    number = ceil(seconds / every) if every else int(seconds > 0)
    return PhaseSaves(number, checkpoint(plan).total, every)


def stored(scenario: Scenario) -> tuple[float, str]:
    """Bytes of a token on disk, and who says so."""
    data = scenario.data
    written = data is not None and data.bytes_per_token is not None
    source = "written by the planner: data.bytes_per_token" if written else _AS_MEGATRON
    return bytes_per_token(data, scenario.model.vocab), source
