"""Balanced routing: what load balancing aims at, and the fast end."""

from __future__ import annotations

from typing import Literal

from twin.routing.base import Routing


class Balanced(Routing):
    """Every expert gets the same tokens."""

    kind: Literal["balanced"] = "balanced"
    """routing"""

    def shares(self, experts: int) -> tuple[float, ...]:
        """The same for all."""
        return (1 / experts,) * experts
