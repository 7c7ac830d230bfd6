"""AdamW's update of one block of parameters: embedding, head and gains, or everything.

Moonlight's second group (arXiv:2502.16982, section 2.2; `toy_train.py`): the same learning rate and
decoupled weight decay as Muon's, gains included. The arithmetic is torch's fused AdamW.
"""

from __future__ import annotations

from torch import Tensor
from torch.optim.adamw import adamw

from reference.optim.blocks import FIRST, MASTER, SECOND, STEP, ParameterBlock
from reference.optim.spec import OptimizerSpec


def update(block: ParameterBlock, state: dict[str, Tensor], lr: float, spec: OptimizerSpec) -> None:
    """Move the block's parameters, and its states, by one step."""
    has_master = MASTER in state
    weights = block.parts(state[MASTER]) if has_master else list(block.params)
    beta1, beta2 = spec.adamw.betas
    steps = state[STEP].to(state[FIRST].device)
    adamw(
        weights,
        [gradient.to(state[FIRST]) for gradient in block.gradients()],
        block.parts(state[FIRST]),
        block.parts(state[SECOND]),
        [],
        # torch counts up each of them, and the block has one count.
        [steps.clone() for _ in weights],
        fused=True,
        amsgrad=False,
        beta1=beta1,
        beta2=beta2,
        lr=lr * spec.adamw.lr_scale,
        weight_decay=spec.weight_decay,
        eps=spec.adamw.eps,
        maximize=False,
    )
    state[STEP].add_(1)
    if has_master:
        block.round_masters(state[MASTER])
