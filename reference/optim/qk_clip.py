"""QK-clip: heads whose attention logits grew too large get smaller query and key weights (Kimi K2,
arXiv:2507.20534, section 2.1 and algorithm 1, lines 8 to 17).

With S the largest scaled logit of a head in this step's forward passes (a signed maximum over
visible pairs, all micro-batches), a head with S above the threshold tau has its logits scaled by
gamma = tau / S: for fixed inputs of the layer, every one, exactly. How gamma is shared among the
weights is the attention block's business (`Clippable.clip_rows`): latent attention gives
sqrt(gamma) to the parts without position of queries and keys, and gamma to the rotary queries,
since the rotary key belongs to all heads; values are left alone.

The variants differ in who is scaled by what:

- `per_layer`: every head of a layer by tau over the layer's largest S, the simpler form that K2's
  report improves on: it also scales heads that did nothing.
- `per_head`: K2's.
- `adaptive` (OURS): per head, with tau = outlier x (the median head's S), held between floor x
  threshold and threshold. An explosion is a few heads that run away from the rest: they are caught
  early, at 30 with the default numbers, which K2's appendix D found to change nothing measurable;
  when all heads grow together, tau rises with them, but never above K2's. So it clips whatever
  `per_head` clips, at least as far, and no head whose S is below the floor. The median is over all
  heads of the model in this step: nothing is remembered between steps, and a run resumes exactly.
  Where more than half of the heads explode at once it is K2's rule; in a model with a handful of
  heads the median is noisy.

A maximum that is no finite number comes from a run that has diverged: such heads are counted and
left as they are, since scaling by it would destroy their weights.

Shapes: H heads of a layer, X rows of a head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from reference.optim.spec import QkClipSpec


@runtime_checkable
class Clippable(Protocol):
    """What QK-clip asks of an attention block."""

    max_logit_H: Tensor
    """Signed maximum of each head's scaled logits since the last reset; -inf where none ran."""

    def reset_max_logit(self) -> None:
        """Begin a new step."""
        ...

    def clip_rows(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Weights [H x X, in] with the power of gamma that each row takes, [H, X]."""
        ...


class Optimizer(Protocol):
    """What QK-clip asks of whoever has the masters."""

    def multiply(self, param: Tensor, factors: Tensor) -> None:
        """Multiply a weight by factors that broadcast over it."""
        ...


@dataclass(frozen=True, slots=True)
class ClipReport:
    """What one clip saw and did."""

    max_logit: float
    """S_max: the largest finite maximum of any head before the clip; -inf where no head ran."""
    layer_max_logits: tuple[float, ...]
    """The same of each layer, in the model's order."""
    heads: int
    """Heads that were scaled: their gamma is below 1."""
    heads_seen: int
    """All heads of the model."""
    heads_diverged: int
    """Heads whose maximum is infinite or no number."""
    least_gamma: float
    """1 where nothing was clipped."""
    threshold: float
    """What maxima were held against; infinity with variant `off`."""


_OFF: Final = float("inf")


@torch.no_grad()
def clip(
    models: nn.Module | Iterable[nn.Module],
    optimizer: Optimizer,
    spec: QkClipSpec,
    population: Tensor | None = None,
) -> ClipReport:
    """Clip the heads of a model, or of some parts of one, that passed the threshold, in masters and
    the parameters rounded from them, and reset all maxima. Call it after `optimizer.step()`, once
    per step. `population`: the maxima of all heads of the whole model, which `adaptive` takes the
    median of; without it those that are here."""
    blocks: list[Any] = list(clippable(models))
    sizes = [block.max_logit_H.numel() for block in blocks]
    # One transfer from the device, whatever the number of layers.
    found = [block.max_logit_H.double() for block in blocks]
    maxima = torch.cat(found).cpu() if found else torch.empty(0, dtype=torch.float64)
    threshold = _threshold(maxima if population is None else population.double().cpu(), spec)
    gammas = [_gammas(layer_H, threshold, spec) for layer_H in maxima.split(sizes)]
    for block, gamma_H in zip(blocks, gammas, strict=True):
        if bool((gamma_H < 1).any()):
            _scale(block, optimizer, gamma_H)
        block.reset_max_logit()
    return _report(maxima, sizes, gammas, threshold)


def least_threshold(spec: QkClipSpec) -> float:
    """Maxima at or below it decide nothing, so that an upper bound serves as well. The median of
    `adaptive` wants all of them exactly."""
    if spec.variant == "off":
        return _OFF
    return -_OFF if spec.variant == "adaptive" else spec.threshold


def clippable(models: nn.Module | Iterable[nn.Module]) -> Iterator[Clippable]:
    """The attention blocks of a model, or of its parts, in order."""
    several = (models,) if isinstance(models, nn.Module) else models
    return (
        module for model in several for module in model.modules() if isinstance(module, Clippable)
    )


def _threshold(maxima: Tensor, spec: QkClipSpec) -> float:
    """The largest logit that is left alone in this step."""
    if spec.variant == "off":
        return _OFF
    if spec.variant != "adaptive":
        return spec.threshold
    seen = maxima[maxima.isfinite()]
    if not seen.numel():
        return spec.threshold
    wanted = spec.outlier * float(seen.median())
    return min(max(wanted, spec.floor * spec.threshold), spec.threshold)


def _gammas(layer_H: Tensor, threshold: float, spec: QkClipSpec) -> Tensor:
    """The factor of each head's logits, float64 [H]: exactly 1 at or below the threshold, negative
    maxima included."""
    finite_H = layer_H.isfinite()
    if threshold == _OFF:
        return torch.ones_like(layer_H)
    largest_H = torch.where(finite_H, layer_H, threshold).clamp(min=threshold)
    if spec.variant == "per_layer":
        largest_H = torch.where(finite_H, largest_H.amax(), threshold)
    # A Python number over a tensor would be computed as its reciprocal, which makes 49 / 49 less
    # than 1.
    return torch.full_like(largest_H, threshold) / largest_H


def _scale(block: Any, optimizer: Optimizer, gamma_H: Tensor) -> None:
    """Rows of heads with gamma 1, and rows with power 0, are multiplied by exactly 1."""
    for param, exponents_HX in block.clip_rows():
        factors_HX = gamma_H[:, None] ** exponents_HX.to(gamma_H)
        optimizer.multiply(param, factors_HX.reshape(-1, *(1 for _ in param.shape[1:])))


def _report(maxima: Tensor, sizes: list[int], gammas: list[Tensor], threshold: float) -> ClipReport:
    finite = maxima.isfinite()
    shown = torch.where(finite, maxima, -torch.inf)
    layers = tuple(float(layer_H.amax()) for layer_H in shown.split(sizes))
    gamma = torch.cat([torch.ones(1), *gammas])
    return ClipReport(
        max_logit=max(layers, default=-torch.inf),
        layer_max_logits=layers,
        heads=int((gamma < 1).sum()),
        heads_seen=maxima.numel(),
        heads_diverged=int((~finite & (maxima != -torch.inf)).sum()),
        least_gamma=float(gamma.amin()),
        threshold=threshold,
    )
