"""Where received weights go: tensors of a rank by name, and what has to happen around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from reference.inference.engine import Engine
from reference.weight_sync.needs import Needs


class Target(Protocol):
    """The weights of one inference rank."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """By name; they are written in place."""
        ...

    def end(self, version: int) -> None:
        """All of them are of this version now."""
        ...


@dataclass(frozen=True, slots=True)
class Memory:
    """Tensors that nobody computes with yet: a rank of a layout that the engine does not run."""

    tensors: Mapping[str, Tensor]

    def end(self, version: int) -> None:
        """Nobody has to hear of it."""


class Served:
    """An engine of one process. It must not step while an update runs: its weights are of two
    versions then."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.tensors: Mapping[str, Tensor] = engine.model.state_dict()

    def end(self, version: int) -> None:
        """Drop the cache of the old weights; who runs goes on under the new ones."""
        self._engine.update_weights(self.tensors, version)  # in place: torch copies nothing


def in_memory(device: torch.device | str = "cpu") -> Callable[[Needs], Target]:
    """Makes tensors for what a rank needs."""
    return lambda needs: Memory(needs.tensors(device))
