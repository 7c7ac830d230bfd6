"""Layers whose modules run as calls of the framework, one kernel each, where nothing fuses them.

What PyTorch runs for a norm, rotary positions and SwiGLU as Hugging Face's models write them
(transformers, `models/llama/modeling_llama.py`: LlamaRMSNorm, apply_rotary_pos_emb, LlamaMLP;
torchtitan's eager RMSNorm is the same). Bytes per element of a bf16 tensor, read and written:

- RMSNorm forward: cast to fp32 6, square 8, mean 4, product with the root 8, cast 6, gain 4;
  adding epsilon and the root are two kernels of one number per row. Backward: gain 12 in three
  kernels, cast 6, product 24 in three, root (three small ones), mean 4, square 28 in three
  (`pow_backward` copies the input, doubles it, multiplies), the sum of both gradients 12, cast 6.
- SwiGLU forward: silu 4, product 6. Backward: product 12 in two, silu 6. Where gate and up are
  halves of one product, their gradients are joined: 8 more (split_backward is a concatenation).
- Rotary forward: times cosine 4, half negated 2, joined 4, times sine 4, sum 6. Backward: both
  products 8, negation 2, two slices into zeros 8, their sum 6, the sum of both ways 6.

Autograd keeps more: a norm its fp32 input and the normed rows before the gain, SwiGLU the silu. And
products that read one tensor each give a gradient of it, which kernels of their own add up, 6 bytes
each. LayerNorm and GeLU are one kernel in PyTorch, too. Left out: copies of keys and values to all
heads, which attention kernels for grouped queries do not need.

Frameworks with tensor and pipeline parallelism around such layers fuse some of these by hand, so a
stack names the kinds that nothing fuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from twin.arch.kernels import streaming
from twin.arch.ops import Item, Op, Shape, Work

SUMMED: Final = 6
"""Bytes per element of a sum of two bf16 gradients."""


@dataclass(frozen=True, slots=True)
class Unfused:
    """Bytes and kernels of an operation, by what one fused kernel moves: bytes per element of a
    tensor and direction, as the fused kernel has them and as calls of the framework do."""

    fused: tuple[int, int]
    moved: tuple[int, int]
    kernels: tuple[int, int]
    kept: float = 1.0
    """Bytes that autograd keeps over those that it keeps of the fused kernel."""

    def of(self, op: Op) -> Op:
        """The operation, kernel by kernel."""
        forward, backward = (
            replace(work, bytes=work.bytes * moved / fused, kernels=kernels)
            for work, moved, fused, kernels in zip(
                (op.forward, op.backward), self.moved, self.fused, self.kernels, strict=True
            )
        )
        return replace(op, forward=forward, backward=backward, saved=self.kept * op.saved)


RMSNORM: Final = Unfused((4, 6), (36, 92), (8, 16), kept=4.0)
SWIGLU: Final = Unfused((6, 10), (10, 18), (2, 3), kept=2.0)
SWIGLU_OF_HALVES: Final = Unfused((6, 10), (10, 26), (2, 4), kept=2.0)
"""Of one product that gives gate and up together."""
ROTARY: Final = Unfused((4, 4), (20, 30), (10, 18))


def eager(items: Iterable[Item], norm: str, shape: Shape) -> tuple[Item, ...]:
    """A layer's items, kernel by kernel those of the kinds that nothing fuses; `norm` is the
    model's kind of norm."""
    return tuple(_summed(_unfused(item, norm, shape) for item in items))


def _unfused(item: Item, norm: str, shape: Shape) -> Item:
    if not isinstance(item, Op) or item.kind not in shape.unfused:
        return item
    if item.kind == "norm" and norm == "rmsnorm":
        return RMSNORM.of(item)
    if item.kind == "rotary":
        return ROTARY.of(item)
    if item.kind == "activation" and item.name.endswith("swiglu"):
        return (SWIGLU if shape.separate else SWIGLU_OF_HALVES).of(item)
    return item


def _summed(items: Iterable[Item]) -> Iterator[Item]:
    """The items, and behind each product but the first of those that read one tensor the sum of its
    gradients. Such products follow one another, with casts between them at most."""
    width = 0
    for item in items:
        yield item
        product = item.forward.product if isinstance(item, Op) and item.kind == "gemm" else None
        if not isinstance(item, Op) or product is None:
            width = width if isinstance(item, Op) and item.kind == "cast" else 0
            continue
        if product.k == width:
            sums = Work(0.0, float(SUMMED * product.rows * product.k), 1)
            yield streaming(f"{item.name}_sum", Work(), sums, 0.0, 0.0)
        width = product.k
