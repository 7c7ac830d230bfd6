"""Measured routing: how many tokens each expert got, as a trainer logs it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from twin.routing.base import Routing, Weight


class Histogram(Routing):
    """Loads of experts in the order of their numbers, so that each rank gets those of its own."""

    kind: Literal["histogram"]
    """routing"""
    loads: tuple[Weight, ...] = Field(min_length=1)
    """tokens of each expert, by its number, in any unit; as many as experts"""

    def shares(self, experts: int) -> tuple[float, ...]:  # noqa: ARG002 (a rule has compared them)
        """Each load over their sum."""
        total = sum(self.loads)
        return tuple(load / total for load in self.loads)
