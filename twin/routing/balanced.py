"""Balanced routing: what load balancing aims at, and the fast end."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from twin.routing.base import Routing


class Balanced(Routing):
    """Every expert gets the same tokens."""

    kind: Literal["balanced"] = Field(default="balanced", description="routing")

    def shares(self, experts: int) -> tuple[float, ...]:
        """The same for all."""
        return (1 / experts,) * experts
