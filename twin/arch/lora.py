"""Low-rank adapters: what they weigh, and what a layer does with them (LoRA; Hu et al. 2021,
arXiv:2106.09685, section 4).

Every matrix of attention, feed-forward blocks, shared and routed experts gets A (in x rank) and B
(rank x out): the modules that prime-rl's `LoRAConfig` names and that NeMo AutoModel's `*_proj`
matches. Router, embedding, head and norms get none, and are frozen as well.

Of a frozen weight there is no gradient, so none of its kernels, no buffer, no reduction, no state.
The gradient of its input goes on. A step uses one of the adapters that stand side by side:

- x A and (x A) B, two thin products, and a kernel that adds the result to W's output;
- both gradients of both; x A is kept for B's, and x, for A's, by whoever makes it.

Matrices that are one product (query, key and value; gate and up) keep adapters of their own: their
A's are one product, their B's one with as many FLOP as the blocks have. An A before a matrix cut by
column is whole on every tensor rank, as is a B behind one cut by row, whose sum joins W's. Left
out: what else those ranks would send; kernels for the gradient of a norm's gain, which go on;
adapters are multiplied in bf16, also beside FP8 products.

PEFT keeps adapters in fp32 beside weights in bf16 (from 0.11 of May 2024 on: `get_peft_model`,
autocast_adapter_dtype; `tuners/lora/layer.py`, Linear.forward), and its calls stand alone
(`eager`). Bytes per element, read and written, on top of the thin products: forward of the input
the cast 6, dropout 9 with its mask and what the product reads more, 2; of the output what the
product writes more, 2, the scaling 8, the sum in fp32 10, the cast back 6. Backward of the output
both casts 12, the scaling 8, what products read more, 4; of the input what the product writes
more, 2, dropout 9, the cast 6, the sum with W's gradient 6. Each matrix has calls of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from twin.arch.kernels import ELEMENT, MASK, SINGLE, Matmul, linear, streaming
from twin.arch.ops import Item, Op, Work
from twin.arch.parameters import Cut, Parameter, Part
from twin.spec.model import LoraSpec

ADAPTED: Final[frozenset[Part]] = frozenset(
    {"attention", "dense_ffn", "shared_experts", "routed_experts"}
)
"""Parts of the model whose matrices get adapters."""
_WITHOUT: Final = frozenset({"router", "shared_gate", "shared.gate", "mtp_projection", "head"})
"""Matrices, and products, without adapters; the gate of shared experts has one column."""
_TOGETHER: Final = {"qkv": 3, "ffn_up": 2, "shared_up": 2, "experts_up": 2}
"""Matrices behind a product of several."""
_CUT_OF_A: Final[dict[Cut, Cut]] = {
    "replicated": "replicated",
    "columns": "replicated",
    "rows": "rows",
    "expert_columns": "expert_whole",
    "expert_rows": "expert_rows",
    "expert_whole": "expert_whole",
}
_CUT_OF_B: Final[dict[Cut, Cut]] = {
    "replicated": "replicated",
    "columns": "columns",
    "rows": "replicated",
    "expert_columns": "expert_columns",
    "expert_rows": "expert_whole",
    "expert_whole": "expert_whole",
}


def adapters(table: Iterable[Parameter], rank: int) -> Iterator[Parameter]:
    """One adapter of each matrix of a parameter table."""
    for one in table:
        if one.role == "matrix" and one.part in ADAPTED and one.name not in _WITHOUT:
            a = replace(one, name=f"{one.name}.lora_a", columns=rank)
            b = replace(one, name=f"{one.name}.lora_b", rows=rank)
            yield replace(a, cut=_CUT_OF_A[one.cut])
            yield replace(b, cut=_CUT_OF_B[one.cut])


_EAGER_FORWARD: Final = (17, 26)
"""Bytes per element of an adapter's input and output, in fp32 and call by call."""
_EAGER_BACKWARD: Final = (23, 24)
_CALLS: Final = (5, 6)
"""Kernels of these calls."""


def adapted(
    items: Sequence[Item], spec: LoraSpec, gated: bool, eager: bool = False
) -> tuple[Item, ...]:
    """A layer's items with frozen weights, and with adapters behind their products. `gated`: the
    dense feed-forward block has two matrices up, as one product; `eager`: adapters are in fp32, and
    nothing fuses their calls."""
    found: list[Item] = []
    for item in items:
        if not isinstance(item, Op):
            found.append(item)
            continue
        found.append(replace(item, weight=Work(), late=0.0))
        product = item.forward.product
        if product is not None and item.weight.kernels and item.name not in _WITHOUT:
            found += _beside(item, spec.rank, gated, eager)
    return tuple(found)


def _beside(op: Op, rank: int, gated: bool, eager: bool) -> tuple[Op, ...]:
    product = op.forward.product
    if product is None:
        return ()
    parts = 1 if op.name == "ffn_up" and not gated else _TOGETHER.get(op.name, 1)
    rows, wide, groups = product.rows, parts * rank, product.groups
    a = linear(
        f"{op.name}_lora_a", Matmul(rows, product.k, wide, groups), float(ELEMENT * rows * wide)
    )
    size = float(ELEMENT * rows * product.cols)
    # W's output waits beside that of B.
    b = replace(
        linear(f"{op.name}_lora_b", Matmul(rows, rank, product.cols, groups)), output=2 * size
    )
    forward, backward, kept = Work(0.0, 3 * size, 1), Work(), 0.0
    if eager:
        taken, given = float(parts * rows * product.k), float(rows * product.cols)
        forward, backward = (
            Work(0.0, each[0] * taken + each[1] * given, parts * calls)
            for each, calls in zip((_EAGER_FORWARD, _EAGER_BACKWARD), _CALLS, strict=True)
        )
        kept = (SINGLE + MASK) * taken
    add = streaming(f"{op.name}_lora_add", forward, backward, kept, size)
    return tuple(
        replace(one, aside=op.aside)
        for one in (replace(a, kind=op.kind), replace(b, kind=op.kind), add)
    )
