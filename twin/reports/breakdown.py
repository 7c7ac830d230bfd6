"""How the step is spent: eleven causes, in integer nanoseconds, that sum to the step exactly.

A row says how one rank's compute stream spends the step; the report's own row is the mean over
ranks. A mean of integers is rarely an integer, so the nanoseconds are dealt by largest remainder,
which keeps the sum exact.

When communication is exposed: while the pipeline fills and drains, or in between.

In the ramp, before a rank's first backward and after its last forward, there is no pass of another
micro-batch to hide a transfer under, whatever the links can do. It costs the same however many
micro-batches follow; what is exposed in the steady state costs that much for every one of them.
Both are means over ranks and sum to the cause's row of the breakdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from twin.engine.trace import CAUSES, Trace
from twin.loading.files import table

CAUSE_WORDS: dict[str, Any] = table(__name__, "CAUSE_WORDS")
"""The causes in plain English."""

KERNELS: Final = ("compute", "contention", "imbalance")
"""Causes in which kernels of passes run, on the fullest rank of an expert group."""
COMMUNICATION = tuple(c for c in CAUSES if c.startswith("exposed_") and c != "exposed_offload")
"""The causes that `exposed_communication_seconds` adds up."""


def mean(rows: Sequence[Mapping[str, int]], ranks: Sequence[int] = ()) -> dict[str, int]:
    """Mean of the rows per cause in whole nanoseconds, summing exactly to the rows' common sum;
    each counts as often as the ranks that it stands for, which empty `ranks` leave equal.

    Largest remainder: every cause gets the floor of its mean, and the nanoseconds left over go one
    each to the causes with the largest remainders (the earlier cause first where they tie)."""
    sums = {int(sum(row.values())) for row in rows}
    assert len(sums) == 1, f"rows of a breakdown must sum to the same step, got {sorted(sums)}"
    assert all(set(row) <= set(CAUSES) for row in rows), "a breakdown row has an unknown cause"
    weights = ranks or [1] * len(rows)
    totals = {
        cause: sum(int(row.get(cause, 0)) * n for row, n in zip(rows, weights, strict=True))
        for cause in CAUSES
    }
    shares = {cause: divmod(total, sum(weights)) for cause, total in totals.items()}
    left = sums.pop() - sum(floor for floor, _ in shares.values())
    favoured = sorted(CAUSES, key=lambda cause: -shares[cause][1])[:left]
    return {cause: shares[cause][0] + (cause in favoured) for cause in CAUSES}


def in_seconds(row: Mapping[str, int]) -> dict[str, float]:
    """The row in seconds."""
    return {cause: ns / 1e9 for cause, ns in row.items()}


def exposed_communication_ns(row: Mapping[str, int]) -> int:
    """Nanoseconds in which compute waits for communication: all `exposed_*` causes except
    `exposed_offload`."""
    return sum(row[cause] for cause in COMMUNICATION)


def bottleneck(row: Mapping[str, int]) -> str:
    """The cause with the largest share beside compute; `compute` where nothing else takes time."""
    worst = max((c for c in CAUSES if c != "compute"), key=lambda c: row[c])
    return worst if row[worst] > 0 else "compute"


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
    weights = trace.ranks or [1] * len(rows)
    found: dict[str, Exposure] = {}
    for cause in EXPOSED_CAUSES:
        whole = breakdown_ns[cause]
        total = sum(row.get(cause, 0) * n for row, n in zip(rows, weights, strict=True))
        ramp = min(whole, round(total / sum(weights)))
        found[cause] = Exposure(ramp, whole - ramp)
    return found


BUBBLES: Final = {
    "fill": "filling and draining the pipeline",
    "unequal": "waiting for the busiest stage",
    "between": "waiting between passes",
}
LOST_WORDS: Final = {
    **BUBBLES,
    **{cause: words for cause, words in CAUSE_WORDS.items() if cause not in ("compute", "bubble")},
}
"""What a step loses beside computing; the bubble in three."""


def lost(trace: Trace) -> dict[str, int]:
    """Nanoseconds that a step loses beside computing, by the keys of `LOST_WORDS`: means over
    ranks, which sum to the step less `compute`.

    The stage with the least bubble is the busiest. The others wait for it by as much as their
    bubble is longer. Its own bubble falls into its ramp, or between its passes."""
    spent = mean(trace.breakdown_ns, trace.ranks)
    bubbles = [row.get("bubble", 0) for row in trace.breakdown_ns]
    least = min(bubbles)
    ramp = trace.ramp_ns[bubbles.index(least)] if trace.ramp_ns else {}
    fill = min(least, ramp.get("bubble", 0))
    found = {"fill": fill, "unequal": spent["bubble"] - least, "between": least - fill}
    return {cause: found.get(cause, spent.get(cause, 0)) for cause in LOST_WORDS}
