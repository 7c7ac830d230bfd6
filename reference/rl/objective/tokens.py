"""Slopes of responses as weights of tokens. Legend: K responses, B rows, T tokens of a row.

A response's log-probability is the sum over its own tokens, so each of them has the response's
slope: minimising sum_t w_t nll_t with w = -slope (`Transformer.loss` with weights) descends the
objective.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from reference.text.loader import IGNORED


def log_probability(logits_BTW: Tensor, targets_BT: Tensor) -> Tensor:
    """Of each row's targets together, in nats, [B], float64; targets of -100 count nothing."""
    nll_BT = _nll(logits_BTW, targets_BT)
    return -nll_BT.double().sum(1)


def weighted(slope_K: Tensor, targets_BT: Tensor, rows: Sequence[int]) -> Tensor:
    """The weight of each target, [B, T]: minus the slope of the response that it belongs to.
    `rows` names the response of each row; targets of -100 weigh nothing."""
    weight_B = -slope_K[torch.tensor(rows, dtype=torch.long)]
    return torch.where(targets_BT == IGNORED, 0.0, weight_B[:, None])


def _nll(logits_BTW: Tensor, targets_BT: Tensor) -> Tensor:
    wide = logits_BTW if logits_BTW.dtype == torch.float64 else logits_BTW.float()
    found = functional.cross_entropy(
        wide.flatten(0, 1), targets_BT.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return found.view_as(targets_BT)
