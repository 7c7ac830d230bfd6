"""Is the faster of two plans named? Pairs of rows that their source measured under one choice more
or less, and what the twin says of the same two.

Two rows are a pair where source, model, GPUs, batch, sequence and all else that they say agree but
for one entry of their layout, micro-batch or precision (degree of parallelism, dispatcher, overlap,
recomputation, schedule, system, ...), and where what was measured differs by more than 3 %. Ranks
left for data parallelism, and micro-batches, follow from the rest and are no choice. Two
predictions that are equal name nobody, which counts as wrong. Rows of different sources are never
paired: their clusters and software differ in more than they say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.suite import PublishedRow, Unreadable, Use

STEP: Final = "step_seconds"
APART: Final = 0.03
"""Of the slower one's time: measurements that are closer say nothing of which plan is faster."""
_FOLLOWS: Final = frozenset(("dp", "ga", "microbatches", "nodes"))
"""Entries of a layout that follow from others."""
_SAME: Final = {
    "local_batch": "mbs", "activation_checkpointing": "recompute", "activation": "recompute",
    "policy": "recompute", "ep_overlap": "moe_a2a_overlap", "framework": "system",
}  # fmt: skip
"""Words of sources for one choice."""
_APART: Final = frozenset(
    ("id", "category", "use", "tier", "confidence", "check", "reproducible", "parallelism", "mbs",
     "precision", "notes", "metrics", "derived", "conditions")
)  # fmt: skip
"""What a row says that tells nothing of what ran, or is a choice."""

Choices = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RowPair:
    """Two answers that one choice tells apart, the one that was measured as faster first."""

    faster: RowResult
    slower: RowResult
    choice: str
    values: tuple[str, str]
    use: Use

    @property
    def measured(self) -> float:
        """By how much the faster one is faster, as a share of the slower one's time."""
        return _saved(self.faster.measured, self.slower.measured)

    @property
    def predicted(self) -> float:
        """The same as it is predicted; below zero where the other is named."""
        return _saved(self.faster.predicted, self.slower.predicted)

    @property
    def named(self) -> bool:
        """Whether the faster one is predicted to be faster."""
        return self.predicted > 0.0

    def to_json(self) -> dict[str, Any]:
        """The pair by names."""
        return {
            "faster": self.faster.id,
            "slower": self.slower.id,
            "source": self.faster.source,
            "choice": self.choice,
            "values": self.values,
            "measured": self.measured,
            "predicted": self.predicted,
            "named": self.named,
            "use": self.use,
        }


def _saved(faster: float | None, slower: float | None) -> float:
    assert faster is not None, "pairs have both"
    assert slower is not None, "pairs have both"
    return 1.0 - faster / slower


def pairs(rows: Iterable[PublishedRow], answers: Iterable[RowResult]) -> tuple[RowPair, ...]:
    """All pairs among rows, in their order."""
    steps = {one.id: one for one in answers if one.metric == STEP and one.error is not None}
    sets: dict[str, list[tuple[RowResult, Choices]]] = {}
    for row in rows:
        if row.id not in steps:
            continue
        try:
            sets.setdefault(_ground(row), []).append((steps[row.id], choices(row)))
        except Unreadable:
            continue
    return tuple(pair for members in sets.values() for pair in _among(members))


def _among(members: Sequence[tuple[RowResult, Choices]]) -> Iterator[RowPair]:
    for one, other in combinations(members, 2):
        (fast, own), (slow, others) = sorted((one, other), key=lambda member: _time(member[0]))
        differ = [name for name in {**own, **others} if own.get(name) != others.get(name)]
        if len(differ) == 1 and 1.0 - _time(fast) / _time(slow) > APART:
            name = differ[0]
            values = own.get(name, "-"), others.get(name, "-")
            yield RowPair(fast, slow, name, values, both(fast.use, slow.use))


def _time(one: RowResult) -> float:
    assert one.measured is not None, "asked of answers with both"
    return one.measured


def both(one: Use, other: Use) -> Use:
    """The use of a pair: `fit` where one of its rows was fitted, else `near-fit` where one is
    that."""
    uses: tuple[Use, ...] = ("fit", "near-fit", "check")
    return next(use for use in uses if use in (one, other))


def _ground(row: PublishedRow) -> str:
    """What must be the same, as text."""
    said = {name: value for name, value in row.fields.items() if name not in _APART}
    return json.dumps(said, sort_keys=True, default=str)


def choices(row: PublishedRow) -> Choices:
    """What a row says that is a choice, by name; what is left out and what is off are alike, as are
    a degree of 1 and none."""
    said = {**row.layout, "mbs": row.fields.get("mbs"), "precision": row.fields.get("precision")}
    found: dict[str, str] = {}
    for name, value in said.items():
        if name not in _FOLLOWS and not _is_off(value):
            found.setdefault(_SAME.get(name, name), "on" if value is True else str(value))
    return found


def _is_off(value: Any) -> bool:
    """Whether a value says no more than nothing would: none, off, or a degree of one."""
    return value is None or value is False or (value is not True and value in (0, 1))


def named(found: Sequence[RowPair]) -> float | None:
    """The share of pairs whose faster one is named; None of none."""
    return sum(pair.named for pair in found) / len(found) if found else None
