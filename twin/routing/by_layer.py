"""Measured routing of each layer: experts are unequally loaded in each layer in its own way."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from twin.routing.base import Routing, Weight, rank_shares

Loads = Annotated[tuple[Weight, ...], Field(min_length=1)]
"""Of the experts of one layer."""


class ByLayer(Routing):
    """Loads of experts in each layer with experts, first to last, as a trainer logs them.

    Another rank is the fullest in each layer, so that a layer ends with its own; a rank keeps what
    its experts get over all layers. Where copies are merged, over how many ranks and nodes a token
    spreads is that of the mean layer.
    """

    kind: Literal["by_layer"]
    """routing"""
    loads: tuple[Loads, ...] = Field(min_length=1)
    """tokens of each expert, by its number, in any unit, for each layer with experts: as many rows
    as such layers, prediction modules last"""

    def shares(self, experts: int) -> tuple[float, ...]:
        """Of the mean layer."""
        layers = [self._shares(layer) for layer in range(len(self.loads))]
        return tuple(
            sum(layer[expert] for layer in layers) / len(layers) for expert in range(experts)
        )

    def loads_in(self, layer: int, experts: int, ranks: int, top_k: int) -> tuple[float, ...]:
        """The layer's own."""
        del experts
        return rank_shares(self._shares(layer), ranks, top_k)

    def layer_loads(self, experts: int, ranks: int, top_k: int) -> tuple[float, ...]:
        """Each layer's own fullest rank."""
        del experts
        return tuple(
            max(1.0, *self.loads_in(layer, 0, ranks, top_k)) for layer in range(len(self.loads))
        )

    def _shares(self, layer: int) -> tuple[float, ...]:
        total = sum(self.loads[layer])
        return tuple(load / total for load in self.loads[layer])
