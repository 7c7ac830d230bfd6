"""Rotary positions (Su et al. 2021, arXiv:2104.09864) and their stretching to longer contexts, YaRN
(Peng et al. 2023, arXiv:2309.00071).

Angles are made in fp32, as the released implementations of DeepSeek-V3 and Kimi K2 do, whatever
the model's precision: in bf16 positions beyond 256 would blur.

Shapes: B batch, T positions, H heads, R rotary width.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, floor, log, pi

import torch
from torch import Tensor

from reference.memory.stash import persistent
from twin.spec.model import Rope, Yarn


class Positions:
    """The rotations of positions 0, 1, ... for heads of one width, made on demand and kept."""

    def __init__(self, rope: Rope, width: int) -> None:
        self.rope = rope
        self.width = width

    def turns(self, stop: int, like: Tensor) -> Tensor:
        """Unit complex numbers, stop by R / 2, on `like`'s device; double precision
        where `like` has it, though the angles are fp32."""
        size = 1 << max(stop - 1, 255).bit_length()
        dtype = torch.complex128 if like.dtype == torch.float64 else torch.complex64
        # A frozen section has a hash, which pyright does not see.
        made = _turns(self.rope, self.width, size, like.device, dtype)  # pyright: ignore[reportArgumentType]
        return made[:stop]


@lru_cache(maxsize=32)
def _turns(rope: Rope, width: int, size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    positions = torch.arange(size, device=device, dtype=torch.float32)
    angles = torch.outer(positions, frequencies(rope, width).to(device))
    part = torch.float64 if dtype == torch.complex128 else torch.float32
    ratio = _ratio(rope.yarn) if rope.yarn else 1.0
    return persistent(
        torch.complex((angles.cos() * ratio).to(part), (angles.sin() * ratio).to(part))
    )


def forget_tables() -> None:
    """Drop the tables that were made: where some had no numbers."""
    _turns.cache_clear()


def frequencies(rope: Rope, width: int) -> Tensor:
    """Radians per position of each of the R / 2 planes, fp32.

    Under YaRN planes that turn less than `beta_slow` times over the original context are slowed by
    the factor, those that turn more than `beta_fast` times stay, and between them a ramp runs over
    the plane's index (arXiv:2309.00071, section 3.2; equal betas make it a step).
    """
    planes = torch.arange(0, width, 2, dtype=torch.int64).float()
    periods = rope.theta ** (planes / width)
    plain = 1.0 / periods
    if rope.yarn is None:
        return plain
    slow, fast = (
        _plane(rope, rope.yarn, width, turns)
        for turns in (rope.yarn.beta_slow, rope.yarn.beta_fast)
    )
    low, high = max(floor(fast), 0), min(ceil(slow), width - 1)
    ramp = (torch.arange(width // 2).float() - low) / (max(high - low, 0.001))
    kept = 1 - ramp.clamp(0, 1)
    # In the order of the released code: one bit of a frequency is 0.01 radians after 128k tokens.
    return 1.0 / (rope.yarn.factor * periods) * (1 - kept) + plain * kept


def _plane(rope: Rope, yarn: Yarn, width: int, turns: float) -> float:
    """The index of the plane that turns so often over the original context."""
    return width * log(yarn.original_context / (turns * 2 * pi)) / (2 * log(rope.theta))


def logit_factor(rope: Rope) -> float:
    """What attention logits are multiplied with beside 1 / sqrt(width): YaRN's temperature,
    (0.1 m ln s + 1)^2 (section 3.4; m is `mscale_all_dim`, as in DeepSeek-V3's code)."""
    return _temperature(rope.yarn.factor, rope.yarn.mscale_all_dim) ** 2 if rope.yarn else 1.0


def _ratio(yarn: Yarn) -> float:
    """What the rotations themselves are scaled by; 1 where both mscales are equal."""
    return _temperature(yarn.factor, yarn.mscale) / _temperature(yarn.factor, yarn.mscale_all_dim)


def _temperature(factor: float, mscale: float) -> float:
    return 0.1 * mscale * log(factor) + 1.0 if factor > 1 else 1.0


def rotate(x_BTHR: Tensor, turns_TR: Tensor) -> Tensor:
    """x with neighbouring numbers (0, 1), (2, 3), ... turned as planes: DeepSeek-V3's and Kimi K2's
    pairing. In fp32 (fp64 for float64). Autograd keeps nothing but the table."""
    wide = x_BTHR if x_BTHR.dtype == torch.float64 else x_BTHR.float()
    planes = torch.view_as_complex(wide.unflatten(-1, (-1, 2)))
    turned = torch.view_as_real(planes * turns_TR[:, None, :])
    return turned.flatten(-2).to(x_BTHR.dtype)


def rotate_halves(x_BTHR: Tensor, turns_TR: Tensor) -> Tensor:
    """The same for heads whose planes pair number i with i + R / 2: GPT-NeoX's and Llama's
    pairing."""
    paired = x_BTHR.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
    turned = rotate(paired, turns_TR)
    return turned.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
