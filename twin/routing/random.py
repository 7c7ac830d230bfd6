"""Random routing: what benchmarks that force balance run, and the least that chance leaves."""

from __future__ import annotations

from math import sqrt
from typing import ClassVar, Literal

from twin.routing.base import Routing


class Random(Routing):
    """Every token chooses its experts by chance, all alike, anew in every layer and micro-batch.

    So does Megatron-LM under --moe-router-force-load-balancing, whose logits are normal noise: no
    expert is popular, and still some rank is the fullest each time (`twin.routing.chance`). A
    router whose experts are equally popular over a batch comes no closer to balance.
    """

    kind: Literal["random"]
    """routing"""
    drawn: ClassVar[bool] = True

    def shares(self, experts: int) -> tuple[float, ...]:
        """The same for all, in the mean."""
        return (1 / experts,) * experts

    def over_layers(self, load: float, layers: float) -> float:
        """Each layer draws anew: by the root of the layers."""
        return 1 + (load - 1) / sqrt(max(1.0, layers))
