"""Which part of a model a rank holds: all of it, or some layers, and some of their experts."""

from __future__ import annotations

from dataclasses import dataclass

from reference.model.dispatch import RowExchange
from twin.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class ModelPart:
    """Layers `first` up to `end`, with the embedding before and the head behind them or without."""

    first: int
    end: int
    embedding: bool
    head: bool
    expert_rank: int = 0
    """Which of the ranks that share the experts of each layer it is."""
    exchange: RowExchange | None = None
    """Those ranks; None where all experts are here."""

    def first_expert(self, spec: ModelSpec) -> int:
        """The number of the first expert that is here; 0 without experts."""
        return self.experts(spec.moe.experts).start if spec.moe else 0

    @property
    def expert_ranks(self) -> int:
        """How many they are."""
        return self.exchange.size if self.exchange else 1

    def experts(self, count: int) -> range:
        """The experts that are here, of so many of a layer."""
        own = count // self.expert_ranks
        return range(self.expert_rank * own, (self.expert_rank + 1) * own)


def whole(spec: ModelSpec) -> ModelPart:
    """All of the model."""
    return ModelPart(0, spec.layers, embedding=True, head=True)
