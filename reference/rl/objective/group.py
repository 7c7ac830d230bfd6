"""The responses to one prompt, as far as an objective sees them. Legend: K responses."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Responses that one policy gave to one prompt."""

    reward_K: Tensor
    """Of each response, in float64."""
    log_ratio_K: Tensor
    """log p(response) now less that under the policy that wrote it, in nats, float64: over the
    whole response, tokens that others wrote (tools, users) left out."""

    def __post_init__(self) -> None:
        if self.reward_K.shape != self.log_ratio_K.shape or self.reward_K.dim() != 1:
            shapes = f"{tuple(self.reward_K.shape)} and {tuple(self.log_ratio_K.shape)}"
            raise ValueError(f"rewards and log-ratios are not one each: {shapes}")
