"""What is measured: per group a list of cases, cheapest to explain first, and what cannot run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from reference.measure.groups.collectives import collective_cases
from reference.measure.groups.host import host_cases
from reference.measure.groups.kernels import bandwidth_cases, copy_cases, launch_cases
from reference.measure.groups.models import optimizer_cases, serving_cases, step_cases
from reference.measure.groups.products import attention_cases, gemm_cases, grouped_cases
from reference.measure.groups.streams import stream_cases, sustained_cases
from reference.measure.points import Setting, Skip, TimedCase

GROUPS: Mapping[str, Callable[[Setting], list[TimedCase | Skip]]] = MappingProxyType(
    {
        "launch": launch_cases,
        "bandwidth": bandwidth_cases,
        "gemm": gemm_cases,
        "grouped": grouped_cases,
        "attention": attention_cases,
        "optimizer": optimizer_cases,
        "host": host_cases,
        "copies": copy_cases,
        "collectives": collective_cases,
        "streams": stream_cases,
        "sustained": sustained_cases,
        "steps": step_cases,
        "serving": serving_cases,
    }
)
"""Every group by name, in the order in which they run."""
