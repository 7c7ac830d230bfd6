"""Parameters and router biases as pieces of the whole model's tensors."""

from __future__ import annotations

from torch import Tensor

from reference.checkpoint import Piece, piece_of
from reference.model import Transformer
from reference.model.part import Part
from reference.optim.groups import is_expert


def weights_of(model: Transformer) -> dict[str, Piece]:
    """Parameters and router biases of a model or of a part of one."""
    return {
        f"model/{name}": _placed(model.part, name, tensor)
        for name, tensor in model.state_dict().items()
    }


def _placed(part: Part, name: str, tensor: Tensor) -> Piece:
    """A parameter, or a state of one, in the whole model's: of experts [E, ...] a rank has some, in
    a row."""
    if not is_expert(name) or tensor.dim() == 0:
        return piece_of(tensor)
    here, *rest = tensor.shape
    offset = part.expert_rank * tensor.numel()
    return piece_of(tensor, offset, (here * part.expert_ranks, *rest))
