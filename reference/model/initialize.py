"""First weights: normal, with a seed for each matrix that follows from its name.

So a weight starts with the same numbers whatever else is there: on any device, and on a rank that
holds only some layers or experts. The standard deviation is DeepSeek-V3's, 0.02 in its released
configuration; K2's report names none.
"""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import Tensor, nn

STANDARD_DEVIATION = 0.02


@torch.no_grad()
def initialize(model: nn.Module, seed: int, first_expert: int = 0) -> None:
    """Fill every parameter in place: gains with 1, matrices at random; biases of routers with 0.

    `first_expert` is the number of the first expert that this model holds.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(1.0)
        elif parameter.dim() == 2:
            _fill(parameter, seed, name)
        else:
            for index, matrix in enumerate(parameter):
                _fill(matrix, seed, f"{name}.{first_expert + index}")


def _fill(matrix: Tensor, seed: int, name: str) -> None:
    if matrix.is_meta:
        return
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little", signed=True))
    drawn = torch.randn(matrix.shape, generator=generator) * STANDARD_DEVIATION
    matrix.copy_(drawn)
