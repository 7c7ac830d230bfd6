"""What ranks agree on behind a step's last pass: largest attention logits and loads of experts.

Each is one small all-reduce for all layers of a rank together, in the order of the model's parts.
Maxima are those of a stage's replicas (dense weights): all of them saw other text (Kimi K2,
arXiv:2507.20534, algorithm 1, line 10). Loads likewise: a router's bias answers to the whole step
(DeepSeek-V3, arXiv:2412.19437, section 2.1.2).

Shapes: H heads of a layer, E experts, X all of a rank's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from reference.model.router import Router
from reference.optim.qk_clip import clippable
from reference.parallel.groups import Group, Reduction


@torch.no_grad()
def agree_maxima(parts: Iterable[nn.Module], replicas: Group) -> None:
    """Make the largest logit of each head that of all replicas. What is no number becomes infinite,
    since a maximum of it depends on the order: QK-clip counts both alike."""
    maxima = [block.max_logit_H for block in clippable(parts)]
    for max_logit_H in maxima:
        max_logit_H.nan_to_num_(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    _agree(maxima, replicas, "qk_maxima", "max")


@torch.no_grad()
def agree_loads(parts: Iterable[nn.Module], replicas: Group) -> None:
    """Make the load of each expert what all replicas sent to it."""
    routers = (one for part in parts for one in part.modules() if isinstance(one, Router))
    _agree([router.load_E for router in routers], replicas, "expert_loads", "sum")


@torch.no_grad()
def population(parts: Iterable[nn.Module], pipeline: Group) -> Tensor:
    """The maxima of all heads of the whole model, fp32 [X], from every stage of a pipeline, for
    `clip` with `adaptive`; behind `agree_maxima`. Heads of a part that two stages hold are there
    twice, which leaves their median where it is."""
    maxima = [block.max_logit_H.float() for block in clippable(parts)]
    device = maxima[0].device if maxima else torch.device("cpu")
    own = torch.cat(maxima) if maxima else torch.empty(0)
    most = pipeline.all_reduce(torch.tensor([own.numel()], device=device), "qk_heads", "max")
    # A head that never ran has no say in the median.
    padded = torch.full((int(most),), -torch.inf, device=device)
    padded[: own.numel()] = own
    return pipeline.all_gather(padded.new_empty(padded.numel() * pipeline.size), padded, "qk_heads")


def _agree(tensors: Sequence[Tensor], group: Group, name: str, reduction: Reduction) -> None:
    if group.size == 1 or not tensors:
        return
    packed_X = torch.cat(list(tensors))
    group.all_reduce(packed_X, name, reduction)
    for tensor, agreed in zip(tensors, packed_X.split([len(one) for one in tensors]), strict=True):
        tensor.copy_(agreed)
