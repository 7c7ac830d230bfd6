"""What a run may log about its weights every so many steps: spectral norms and SVD entropy, by the
matrix's role.

Cheap on purpose: a power iteration instead of a decomposition, the eigenvalues of the smaller Gram
matrix instead of an SVD, and a few experts instead of all. What QK-clip did is in its own report
(`reference.optim.qk_clip.ClipReport`).

Shapes: M matrices, R rows, C columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log
from typing import Final

import torch
from torch import Tensor

from reference.optim.blocks import matrices

ITERATIONS: Final = 32
"""Of the power method: within 2% for Gaussian matrices up to 512 x 512, whose largest singular
values lie close together, and far closer once one stands out."""
SAMPLE: Final = 4
"""Matrices of one parameter that are looked at: of many experts the first, the last and between."""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Singular values of all matrices of one role, in all layers."""

    spectral_norm: float
    """The largest of any of them."""
    entropy: float
    """Mean SVD entropy, 0 to 1."""
    matrices: int
    """How many were looked at."""


@torch.no_grad()
def spectra(
    named_parameters: Iterable[tuple[str, Tensor]], sample: int = SAMPLE
) -> dict[str, Spectrum]:
    """By role: a parameter's name without its layer, such as `attention.q_up`. Only matrices that
    Muon takes."""
    norms: dict[str, list[Tensor]] = {}
    entropies: dict[str, list[Tensor]] = {}
    for name, param in named_parameters:
        stack_MRC = matrices(name, param.detach())
        if stack_MRC is None:
            continue
        last = stack_MRC.shape[0] - 1
        chosen = sorted({round(last * part / max(1, sample - 1)) for part in range(sample)})
        some_MRC = stack_MRC[chosen]
        norms.setdefault(role(name), []).append(spectral_norm(some_MRC))
        entropies.setdefault(role(name), []).append(svd_entropy(some_MRC))
    return {
        key: _spectrum(torch.cat(found), torch.cat(entropies[key])) for key, found in norms.items()
    }


def _spectrum(norms_M: Tensor, entropies_M: Tensor) -> Spectrum:
    return Spectrum(float(norms_M.max()), float(entropies_M.mean()), len(norms_M))


def role(name: str) -> str:
    """`layers.3.attention.q_up.weight` -> `attention.q_up`."""
    words = name.removesuffix(".weight").split(".")
    return ".".join(words[2:] if words[0] == "layers" else words)


def spectral_norm(stack_MRC: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """The largest singular value of each matrix, [M] fp32, from below, by power iteration from a
    fixed start. After k iterations a second singular value s2 leaves errors of (s2/s1)^(2k).
    """
    stack_MRC = stack_MRC.float()
    start = torch.Generator().manual_seed(0)
    v_C1 = torch.randn(stack_MRC.shape[2], 1, generator=start).to(stack_MRC.device)
    v_MC1 = v_C1.expand(stack_MRC.shape[0], -1, -1)
    for _ in range(iterations):
        v_MC1 = stack_MRC.mT @ (stack_MRC @ v_MC1)
        v_MC1 = v_MC1 / v_MC1.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return (stack_MRC @ v_MC1).norm(dim=(1, 2))


def svd_entropy(stack_MRC: Tensor) -> Tensor:
    """How evenly each matrix's energy is spread over its n singular values s, [M] fp32:
    -(1 / ln n) sum p ln p with p = s^2 / sum s^2; 1 when all are equal, 0 for rank one (and for
    zero).

    Source: arXiv:2502.16982, section 3.4, where Muon's is higher than AdamW's for over 90% of
    matrices. s^2 are eigenvalues of the Gram matrix; in fp32 those below 1e-7 of the largest are
    noise, and add nothing.
    """
    stack_MRC = stack_MRC.float()
    if stack_MRC.shape[1] > stack_MRC.shape[2]:
        stack_MRC = stack_MRC.mT
    n = stack_MRC.shape[1]
    if n == 1:
        return torch.zeros(stack_MRC.shape[0], device=stack_MRC.device)
    squares_Mn = torch.linalg.eigvalsh(stack_MRC @ stack_MRC.mT).clamp(min=0)
    p_Mn = squares_Mn / squares_Mn.sum(dim=1, keepdim=True).clamp(
        min=torch.finfo(torch.float32).tiny
    )
    return -torch.xlogy(p_Mn, p_Mn).sum(dim=1) / log(n)
