"""When communication is exposed: while the pipeline fills and drains, or in between.

In the ramp, before a rank's first backward and after its last forward, there is no pass of another
micro-batch to hide a transfer under, whatever the links can do. It costs the same however many
micro-batches follow; what is exposed in the steady state costs that much for every one of them.
Both are means over ranks and sum to the cause's row of the breakdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from twin.engine.trace import CAUSES, Trace

EXPOSED_CAUSES: Final = tuple(cause for cause in CAUSES if cause.startswith("exposed_"))
"""The causes that are split, host copies among them."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """Nanoseconds of one exposed cause in the ramp and in the steady state."""

    ramp_ns: int
    steady_ns: int

    def to_json(self) -> dict[str, Any]:
        """In seconds."""
        return {"ramp_seconds": self.ramp_ns / 1e9, "steady_seconds": self.steady_ns / 1e9}


def exposures(trace: Trace, breakdown_ns: Mapping[str, int]) -> dict[str, Exposure]:
    """Every exposed cause of a breakdown, which is the mean of the trace's roles, in its two
    parts; empty where the trace does not tell them apart."""
    rows = trace.ramp_ns
    if not rows:
        return {}
    found: dict[str, Exposure] = {}
    for cause in EXPOSED_CAUSES:
        whole = breakdown_ns[cause]
        ramp = min(whole, round(sum(row.get(cause, 0) for row in rows) / len(rows)))
        found[cause] = Exposure(ramp, whole - ramp)
    return found
