"""The Trace: what happened, columnar. One type for simulated and for measured runs. Made by
`twin.engine.simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

CAUSES: Final = (
    "compute",
    "contention",
    "imbalance",
    "exposed_tensor",
    "exposed_expert",
    "exposed_pipeline",
    "exposed_data",
    "exposed_context",
    "exposed_offload",
    "optimizer",
    "host",
    "bubble",
    "other",
)
"""How a compute stream spends the step, in the order of the public contract."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Things that took time, one row each, ordered by role, stream and start; times in integer
    nanoseconds."""

    role: NDArray[np.int32]
    stream: NDArray[np.int8]
    """Index into `twin.engine.program.STREAMS`."""
    name: NDArray[np.int32]
    """Index into `Trace.names`."""
    chunk: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trace:
    """A played step. Where the schedule is staggered, a stage's step begins as much later than the
    first one's as its first pass does, and ends `step_ns` later, so that `spans` reach beyond it.
    Where `repeats` > 1 a steady window was played once and repeats: `spans` then
    holds the played part only, whose time between `window_start` and `window_end` stands for
    `repeats` such windows; `step_ns` and all sums are of the whole step."""

    spans: Spans
    names: tuple[str, ...]
    roles: tuple[str, ...]
    step_ns: int
    breakdown_ns: tuple[dict[str, int], ...]
    """Per role: how its compute stream spends the step; each sums to `step_ns`."""
    link_bytes: dict[str, float]
    """Bytes carried by one link over the step, per class: mean over its links."""
    link_busy: dict[str, float]
    """Share of a link's capacity over the step that they take, per class: mean over its links."""
    events: int
    played_microbatches: int
    microbatches: int
    repeats: int = 1
    window_start: int = 0
    window_end: int = 0
    ranks: tuple[int, ...] = ()
    """Per role: ranks that it stands for; empty: as many for each."""
    ramp_ns: tuple[dict[str, int], ...] = ()
    """Per role: how its compute stream spends its warm-up, before its first backward, and its
    cool-down, after its last forward; the rest of `breakdown_ns` is steady state."""
    critical: tuple[int, ...] = ()
    """Rows of `spans` that made the played part as long as it is, in the order of time: each was
    released by the one before."""

    shown: tuple[int, int] | None = None
    """From when to when `spans` has what some roles did; None: all of it."""

    def within(self, window: tuple[int, int], roles: Sequence[int]) -> Trace:
        """The same step with those spans only that some of these roles have in a window (ns). All
        sums stay those of the whole step."""
        spans, (begin, end) = self.spans, window
        kept = (spans.end > begin) & (spans.start < end) & np.isin(spans.role, roles)
        return replace(self._with(kept), shown=window)

    def only(self, roles: range) -> Trace:
        """The same step of neighbouring roles, numbered from 0; sums of links stay those of all."""
        own = slice(roles.start, roles.stop)
        found = self._with((self.spans.role >= roles.start) & (self.spans.role < roles.stop))
        return replace(
            found,
            spans=replace(found.spans, role=found.spans.role - roles.start),
            roles=self.roles[own],
            ranks=self.ranks[own],
            breakdown_ns=self.breakdown_ns[own],
            ramp_ns=self.ramp_ns[own],
        )

    def _with(self, kept: NDArray[np.bool_]) -> Trace:
        """The same step with some of its spans."""
        rows = np.cumsum(kept) - 1
        columns = {one.name: getattr(self.spans, one.name)[kept] for one in fields(Spans)}
        critical = tuple(int(rows[row]) for row in self.critical if kept[row])
        return replace(self, spans=Spans(**columns), critical=critical)

    @property
    def extrapolated_fraction(self) -> float:
        """Share of the step that was not played but proved to repeat."""
        return (
            (self.repeats - 1) * (self.window_end - self.window_start) / self.step_ns
            if self.step_ns
            else 0.0
        )
