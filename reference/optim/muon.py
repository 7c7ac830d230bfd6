"""Muon's update of one block of matrices (Kimi K2, arXiv:2507.20534, algorithm 1, lines 3 to 6).

    M = momentum M + G                      sum; average: M = momentum M + (1 - momentum) G
    O = NewtonSchulz(M) sqrt(max(R, C)) 0.2
    W = W - lr (O + weight_decay W)

An orthogonal R x C matrix has a root mean square of 1 / sqrt(max(R, C)) (arXiv:2502.16982, lemma
1), so the scale makes that of the update 0.2, whatever the shape; measured 0.17 to 0.19, since
Newton-Schulz leaves singular values around 0.9. With average the arithmetic is that of
`torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`, operation by operation.

Newton-Schulz gives the nearly orthogonal matrix that points where a momentum points: a quintic
polynomial applied to the singular values (Jordan et al. 2024, "Muon", from which the coefficients;
Kimi K2 takes it over through Moonlight, arXiv:2502.16982, section 2.2). In bf16, as released there.
The polynomial is chosen for speed, not for a limit of 1 (f(1) = 0.701): after 5 steps singular
values of the input between 0.01 and 1 of its Frobenius norm lie between 0.68 and 1.135, and smaller
ones below. bf16 rounding adds about 1 %.

Matrices of one shape are taken together: products of many small matrices are one call, which on a
CPU (torch 2.13, one thread, 128 of 64 x 128) is 5 times as fast as one call each in bf16 by
AVX512-BF16, 1.8 times where bf16 is converted, and as fast in fp32, which gains below 32 x 32 (8
times at 64 of 16 x 32). Small ones (`SMALL`) are multiplied in fp32 on any CPU. The bits are
those of one call each for short sides above 16; below, torch computes single products of up to 16^3
multiply-adds with another kernel, and one number in about 10^4 differs by a bf16 rounding.

Shapes: M matrices, R rows, C columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from math import sqrt
from typing import Final

import torch
from torch import Tensor

from reference.number_formats import cpu_bf16
from reference.optim.blocks import MASTER, MOMENTUM, ParameterBlock
from reference.optim.spec import OptimizerSpec

COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)
"""Of X, X X^T X and (X X^T)^2 X (KellerJordan/Muon, `muon.py`; MoonshotAI/Moonlight,
`toy_train.py`)."""
SMALL: Final = 1 << 16
"""Multiply-adds of a product up to which fp32 is faster on a CPU, one matrix or many: 2 times at 1
of 16 x 16, 1.4 at 64 of 16 x 32, as fast at 16 of 32 x 64 (Zen 5, AVX512-BF16)."""
EPSILON: Final = 1e-7
"""The least norm that is divided by (as above): a zero matrix stays zero."""


def precision(kind: torch.dtype) -> torch.dtype:
    """What directions are rounded to before they are orthogonalised: bf16, as everybody does it;
    but float64 stays, so that a proof in it is one."""
    return kind if kind == torch.float64 else torch.bfloat16


def worked_in(
    kind: torch.dtype, device: torch.device, shape: Sequence[int] = (1 << 10, 1 << 10)
) -> torch.dtype:
    """What matrices of a shape are multiplied in: `precision`, but fp32 on a CPU that would convert
    bf16 for each product, or that is done with small ones before it would have begun."""
    exact = precision(kind)
    if exact != torch.bfloat16 or device.type != "cpu":
        return exact
    short, long = sorted(shape)
    return torch.float32 if short * short * long <= SMALL or not cpu_bf16() else exact


def orthogonalize(stack_MRC: Tensor, steps: int = 5, device: torch.device | None = None) -> Tensor:
    """Each matrix with its singular vectors kept and its singular values near 1, [M, R, C] in bf16
    (`worked_in`); tall ones come back as transposed views. The input is left as it was; the work is
    done on `device`, else where the input is."""
    a, b, c = COEFFICIENTS
    place = device or stack_MRC.device
    kind = worked_in(stack_MRC.dtype, place, stack_MRC.shape[1:])
    x = stack_MRC.to(place, precision(stack_MRC.dtype), copy=True).to(kind)
    several = x.shape[0] > 1
    times, times_plus = (torch.bmm, torch.baddbmm) if several else (torch.mm, torch.addmm)
    if not several:
        x = x.squeeze(0)
    norm = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT.contiguous()
    x.div_(norm.clamp_(min=EPSILON))
    # Memory is taken once: fresh pages for every product would cost a tenth of small ones.
    following = torch.empty_like(x)
    gram = x.new_empty(*x.shape[:-1], x.shape[-2])
    polynomial = torch.empty_like(gram)
    for _ in range(steps):
        times(x, x.mT, out=gram)
        times_plus(gram, gram, gram, beta=b, alpha=c, out=polynomial)
        times_plus(x, polynomial, x, beta=a, out=following)
        x, following = following, x
    if tall:
        x = x.mT
    return x if several else x.unsqueeze(0)


def muon_flop(shapes: Mapping[tuple[int, int], int], steps: int = 5) -> float:
    """FLOP of one optimizer step's iterations over so many matrices of each (rows, cols).

    With n the short and m the long side, one iteration is three products, 2 n^2 m + 2 n^3 + 2 n^2 m
    (the symmetry of the first two is not used). They belong to a step's hardware FLOP, not to the
    model's: MFU leaves them out.
    """
    total = 0.0
    for (rows, cols), matrices in shapes.items():
        n, m = sorted((rows, cols))
        total += steps * matrices * (4.0 * n * n * m + 2.0 * n**3)
    return total


def update(block: ParameterBlock, state: dict[str, Tensor], lr: float, spec: OptimizerSpec) -> None:
    """Move the block's parameters, and its states, by one step."""
    decay, scale = factors(block, lr, spec)
    target = _target(block, state)
    for momentum_MRC, grad_MRC, target_MRC in zip(
        _stacks(block, state[MOMENTUM]),
        _stacks(block, block.gradient()),
        repeat(None) if target is None else _stacks(block, target),
        strict=False,
    ):
        direction_MRC = advance(momentum_MRC, grad_MRC.to(momentum_MRC), spec)
        ortho_MRC = orthogonalize(direction_MRC, spec.ns_steps, block.device)
        if target_MRC is None:
            _move_several(block, ortho_MRC, decay, scale)
        else:
            move(target_MRC, ortho_MRC, decay, scale)
    if MASTER in state:
        block.round_masters(state[MASTER])


def advance(momentum: Tensor, grad: Tensor, spec: OptimizerSpec) -> Tensor:
    """The momentum after this gradient, in place, and what is orthogonalised: itself, or under
    Nesterov's rule a look ahead. Number by number: of any part of a matrix."""
    if spec.momentum_buffer == "average":
        momentum.lerp_(grad, 1 - spec.momentum)
        return grad.lerp(momentum, spec.momentum) if spec.nesterov else momentum
    momentum.mul_(spec.momentum).add_(grad)
    return grad.add(momentum, alpha=spec.momentum) if spec.nesterov else momentum


def factors(block: ParameterBlock, lr: float, spec: OptimizerSpec) -> tuple[float, float]:
    """What the old weights and the orthogonal matrices are multiplied by."""
    assert block.shape is not None
    return 1 - lr * spec.weight_decay, -(lr * (spec.rms_scale * sqrt(max(block.shape))))


def move(target: Tensor, ortho: Tensor, decay: float, scale: float) -> None:
    """Make the weights, or any part of them, those of the next step."""
    target.mul_(decay).add_(ortho.to(target.device), alpha=scale)


def _target(block: ParameterBlock, state: dict[str, Tensor]) -> Tensor | None:
    """The weights to move as one tensor: masters, or a parameter that has the block for itself."""
    if MASTER in state:
        return state[MASTER]
    return block.params[0] if len(block.params) == 1 else None


def _stacks(block: ParameterBlock, weights: Tensor) -> tuple[Tensor, ...]:
    """The block's matrices, as many at a time as are orthogonalised in one call."""
    assert block.shape is not None
    stack_MRC = weights.view(-1, *block.shape)
    # The test costs less than a split into one: 2 of 150 microseconds of a small step.
    return (stack_MRC,) if stack_MRC.shape[0] <= block.at_once else stack_MRC.split(block.at_once)


def _move_several(block: ParameterBlock, ortho_MRC: Tensor, decay: float, scale: float) -> None:
    """Several parameters that are their own masters. The direction is widened and laid out once:
    adding bf16, or transposed, to each is slower."""
    wide = torch.empty(ortho_MRC.shape, dtype=block.dtype, device=block.device).copy_(ortho_MRC)
    torch._foreach_mul_(block.params, decay)  # pyright: ignore[reportPrivateImportUsage]
    torch._foreach_add_(block.params, block.parts(wide), alpha=scale)  # pyright: ignore[reportPrivateImportUsage]
