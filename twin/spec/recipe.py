"""Recipes of numbers: what matrix products multiply in training, and which parts of a model keep
more bits. Each is a part of the catalog, with the source that says so."""

from __future__ import annotations

from typing import Annotated, Literal

from twin.spec.base import UNWRITTEN, Flag, Spec, Whole

Precision = Literal["bf16", "fp8", "nvfp4", "mxfp4"]
"""Numbers that tensor cores multiply: fp8 is E4M3, the last two are E2M1 (`twin.arch.fp4`)."""
Scaling = Literal["block", "tensor", "current", "mx", "row"]
"""What shares a scale of FP8: 128 values, or 128 x 128 (DeepSeek-V3, section 3.3); a tensor, by the
steps before; a tensor, by itself; 32 values (`twin.arch.fp8`); a row (`twin.arch.fp8_rows`)."""
NumbersOf = Literal[
    "attention", "mixer", "mixer_out", "dense", "experts", "shared_experts", "latent", "mtp"
]
"""Parts of a model whose products may have numbers of their own: the projections of attention;
those of another mixer, and of these the one back to the hidden state; dense feed-forward blocks;
routed and shared experts; projections to the width of routed experts and back; modules that
predict further tokens."""
Technique = Literal["hadamard", "stochastic_rounding"]
"""What a recipe of FP4 does beside scaling (`twin.arch.fp4`)."""


class RecipeSpec(Spec):
    """Numbers of matrix products in training. Attention itself, router, norms, embedding and head
    are in bf16 whatever it says."""

    name: str
    """what reports call the recipe"""
    precision: Precision
    """numbers of matrix products"""
    fp8_scaling: Scaling | None = None
    """of FP8; null: block"""
    fp8_param_gather: Flag = False
    """new weights are sent to other ranks in FP8"""
    fp4_param_gather: Annotated[Flag, UNWRITTEN] = False
    """of FP4: new weights are sent to other ranks in FP4, and no bf16 copy stays beside the two
    that products read"""
    bf16_first: Annotated[Whole, UNWRITTEN] = 0
    """first layers that multiply in bf16"""
    bf16_last: Annotated[Whole, UNWRITTEN] = 0
    """last layers that multiply in bf16"""
    bf16_parts: Annotated[tuple[NumbersOf, ...], UNWRITTEN] = ()
    """parts of the other layers that multiply in bf16"""
    fp8_parts: Annotated[tuple[NumbersOf, ...], UNWRITTEN] = ()
    """parts of the other layers that multiply in FP8"""
    without: Annotated[tuple[Technique, ...], UNWRITTEN] = ()
    """of FP4: what is left out: hadamard (rotation of what goes into weights' gradients),
    stochastic_rounding (of gradients)"""

    @property
    def numbers(self) -> tuple[tuple[NumbersOf, Precision], ...]:
        """Parts with numbers of their own."""
        fp8: tuple[tuple[NumbersOf, Precision], ...] = tuple((one, "fp8") for one in self.fp8_parts)
        return (*fp8, *((one, "bf16") for one in self.bf16_parts))
