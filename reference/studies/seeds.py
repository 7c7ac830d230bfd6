"""Runs that differ by their seed alone: their losses, and what numbers of so few of them say."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from statistics import mean, stdev
from typing import TypeVar

from reference.studies.outcome import Outcome

NameT = TypeVar("NameT", bound=Hashable)
Found = Mapping[tuple[NameT, int], Outcome]
"""Outcomes by what was varied and seed."""


def seeds_of(found: Found[NameT]) -> tuple[int, ...]:
    """In order."""
    return tuple(sorted({seed for _, seed in found}))


def finals(found: Found[NameT], name: NameT) -> list[float]:
    """Held-out losses at the end, by seed."""
    return [found[name, seed].final for seed in seeds_of(found)]


def cells(losses: Sequence[float]) -> list[str]:
    """Losses by seed, then their mean, as a table shows them below `head`."""
    return [f"{loss:.4f}" for loss in (*losses, mean(losses))]


def head(seeds: Sequence[int], of: str = "") -> list[str]:
    """The heads of those columns; `of` stands before each seed's.

    >>> head([0, 1])
    ['seed 0', 'seed 1', 'mean']
    """
    return [*(f"{of}seed {seed}" for seed in seeds), "mean"]


def spread(values: Sequence[float]) -> float:
    """Standard deviation over seeds (n - 1); 0 for a single one."""
    return stdev(values) if len(values) > 1 else 0.0


def between(values: Sequence[float], form: str) -> str:
    """The lowest to the highest, as text.

    >>> between([0.521, 0.61], ".2f")
    '0.52 to 0.61'
    """
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
