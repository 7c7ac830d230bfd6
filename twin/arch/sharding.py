"""Collectives of tensor parallelism at the edges of a region that is cut over tensor ranks.

Megatron-LM: a column-cut GEMM enters the region, a row-cut GEMM leaves it. Without sequence
parallelism the way out all-reduces forward and the way in all-reduces backward (Shoeybi et al.
2019, arXiv:1909.08053, section 3). With it, the way in all-gathers and the way out reduce-scatters,
each the other's mirror backward; and since only a slice of the region's input is kept, backward
gathers it once more for the weight's gradient (Korthikanti et al. 2022, arXiv:2205.05198, section
4.2.2). What enters products in FP8 is cast before it is gathered (Transformer Engine); so is the
gradient of what leaves them, where a tensor has one scale (`grad_output_preprocess`). All else
travels in bf16. Not here: the all-reduce over tensor ranks, once per step, of
the gradients of weights that sequence parallelism feeds with slices (norms, biases, routers).
"""

from __future__ import annotations

from twin.arch.kernels import ELEMENT, FP8
from twin.arch.ops import CollectiveKind, Exchange, Precision, Shape


def enter(
    name: str, size: float, shape: Shape, precision: Precision = "bf16"
) -> tuple[Exchange, ...]:
    """Before column-cut GEMMs whose input, whole, has `size` bytes in bf16."""
    if shape.tensor == 1:
        return ()
    if shape.sequence_parallel:
        sent = _sent(size, precision)
        return (
            Exchange(name, "tensor", sent, "all_gather", "reduce_scatter", backward_bytes=size),
        )
    return (Exchange(name, "tensor", size, None, "all_reduce"),)


def regather(
    name: str, size: float, shape: Shape, precision: Precision = "bf16"
) -> tuple[Exchange, ...]:
    """After those GEMMs in forward order, so before their gradients: the input gathered again."""
    if shape.tensor == 1 or not shape.sequence_parallel:
        return ()
    return (Exchange(name, "tensor", _sent(size, precision), None, "all_gather"),)


def leave(name: str, size: float, shape: Shape) -> tuple[Exchange, ...]:
    """After a row-cut GEMM whose output, whole, has `size` bytes."""
    if shape.tensor == 1:
        return ()
    if shape.sequence_parallel:
        gathered = _sent(size, "fp8") if shape.per_tensor else size
        kinds: tuple[CollectiveKind, CollectiveKind] = ("reduce_scatter", "all_gather")
        return (Exchange(name, "tensor", size, *kinds, backward_bytes=gathered),)
    return (Exchange(name, "tensor", size, "all_reduce", None),)


def _sent(size: float, precision: Precision) -> float:
    return size * FP8 / ELEMENT if precision == "fp8" else size
