"""The optimizer of a rank that shares its weights with nobody, with what `Replicas` can do beside:
there is nothing to reduce, nothing to gather, and every state is whole."""

from __future__ import annotations

import torch
from torch import Tensor

from reference.checkpoint.piece import Piece, piece_of
from reference.optim.muonclip import MuonClip
from reference.parallel.timeline import NOWHERE


class Alone(MuonClip):
    """MuonClip of one rank."""

    def advance(self) -> None:
        """All of the step is its move."""

    def gather(self) -> None:
        """Every state is whole."""

    def move(self) -> None:
        """All of the step."""
        self.step()

    def reduce(self, part: int, chunk: int = NOWHERE) -> None:
        """The gradients are summed already."""

    def norm_squares(self) -> Tensor:
        """The sum of squares of all gradients, 0-dimensional."""
        gradients = [one.grad for one in self.param_groups[0]["params"] if one.grad is not None]
        return torch.nn.utils.get_total_norm(gradients).square()

    def publish(self) -> None:
        """Nobody else needs the new weights."""

    def pieces(self, *, once: bool = False) -> dict[str, Piece]:
        """All states, as they are and no copies: `optimizer/<parameter>/<state>`."""
        del once
        return {
            f"optimizer/{name}/{key}": piece_of(tensor)
            for name, states in self.state_dict()["state"].items()
            for key, tensor in states.items()
        }
