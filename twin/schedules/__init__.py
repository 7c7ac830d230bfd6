"""Pipeline schedules, as ordered lists of passes that a simulator and a trainer both execute.

A new schedule is one new module of this package; `SCHEDULES` finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from twin.schedules.base import Schedule
from twin.spec.axis import members

SCHEDULES: Mapping[str, type[Schedule]] = MappingProxyType(
    {k: found for k, found in members(__name__, Schedule).items() if issubclass(found, Schedule)}
)
"""The class of every schedule by its `kind`, in the order of their modules."""

KNOWN: Mapping[str, type[Schedule]] = MappingProxyType(
    {k: found for k, found in SCHEDULES.items() if k != "custom"}
)
"""Those that have an order of their own; of a custom one it is written out."""
