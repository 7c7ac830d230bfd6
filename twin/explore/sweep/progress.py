"""How far a search is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is, for a bar: what it does now, and how much of it is done."""

    doing: str
    done: int
    total: int
