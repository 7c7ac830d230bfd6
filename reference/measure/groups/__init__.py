"""What is measured, one file per group: `cases(setting)` lists the operations of one, cheapest to
explain first, and what of it cannot run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from reference.measure.case import Case, Setting, Skip
from reference.measure.groups import (
    attention,
    bandwidth,
    collectives,
    copies,
    gemm,
    grouped,
    launch,
    optimizer,
    serving,
    steps,
)

GROUPS: Mapping[str, Callable[[Setting], list[Case | Skip]]] = MappingProxyType(
    {
        "launch": launch.cases,
        "bandwidth": bandwidth.cases,
        "gemm": gemm.cases,
        "grouped": grouped.cases,
        "attention": attention.cases,
        "optimizer": optimizer.cases,
        "copies": copies.cases,
        "collectives": collectives.cases,
        "steps": steps.cases,
        "serving": serving.cases,
    }
)
"""Every group by name, in the order in which they run."""
