"""Mixture of experts: router, shared experts, and routed experts (SwiGLU) over an expert group.

Each rank of the expert group brings its own tokens; a plain all-to-all carries one copy per chosen
expert, and a second one brings the results back (DeepSeek-V3, arXiv:2412.19437, section 2.1.2;
Megatron-LM's `alltoall` dispatcher). Routing is balanced: each rank's experts get tokens x top-k.

Assumptions, all named:
- The router multiplies bf16 by bf16 into fp32 logits (Megatron-LM's router gating with fp32
  output); scores and choice are fp32. A true fp32 GEMM would be slower by the ratio of the peaks.
- Routing weights (4 bytes per copy, beside 2 x hidden) travel free; they multiply inside the
  experts' SwiGLU, before the down-projection (Megatron-LM, `weighted_bias_swiglu_impl`), so that
  the down-projection's output is not kept. Weighting at the combine would keep 2 x top-k x hidden
  bytes per token more.
- Tensor ranks do not cut experts, router or shared experts: each is whole on every tensor rank.
  With sequence parallelism a tensor rank routes its own slice of tokens; without it, every tensor
  rank does the same work on the same tokens, wasteful but consistent (Megatron-LM refuses it).
"""

from __future__ import annotations

from twin.arch.kernels import ELEMENT, SINGLE, grouped_linear, linear, matmul, streaming, swiglu
from twin.arch.ops import Exchange, Item, Op, Shape, Work
from twin.arch.parameters import Parameter, matrix
from twin.spec.model import ModelSpec, Moe


def parameters(moe: Moe, model: ModelSpec) -> tuple[Parameter, ...]:
    """The weights of one MoE block; each expert is three matrices, shared experts fused to one."""
    hidden, shared = model.hidden, moe.shared_experts * moe.width
    bias = Parameter("router.bias", "router", "buffer", moe.experts)
    beside = (
        matrix("shared.up", "shared_experts", (hidden, shared), "replicated", 2),
        matrix("shared.down", "shared_experts", (shared, hidden), "replicated"),
    )
    return (
        matrix("router", "router", (hidden, moe.experts), "replicated"),
        *((bias,) if moe.correction_bias else ()),
        *(beside if shared else ()),
        matrix("experts.up", "routed_experts", (hidden, moe.width), "expert", 2 * moe.experts),
        matrix("experts.down", "routed_experts", (moe.width, hidden), "expert", moe.experts),
    )


def items(moe: Moe, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From the normed hidden state to the block's output, before the residual."""
    tokens, hidden = shape.local_tokens, model.hidden
    return (
        *_router(moe, hidden, tokens),
        *_shared(moe, hidden, tokens),
        *_dispatch(moe, hidden, tokens, shape.expert),
        *_experts(moe, hidden, tokens, shape.expert),
        *_combine(moe, hidden, tokens, shape.expert),
    )


def _router(moe: Moe, hidden: int, tokens: int) -> tuple[Op, ...]:
    """Logits, then scores, top-k and weights. Keeps the fp32 scores, and 4 + 4 bytes for the
    weight and the index of each choice. Eager kernels: score, bias, top-k, gather, sum, divide,
    scale."""
    logits = SINGLE * tokens * moe.experts
    chosen = 2 * SINGLE * tokens * moe.top_k
    rows, flop = ELEMENT * tokens * hidden, matmul(tokens, hidden, moe.experts).flop
    work = Work(flop, rows + ELEMENT * hidden * moe.experts + logits, 1)
    weight = Work(flop, rows + 2 * SINGLE * hidden * moe.experts + logits, 1)
    scores = streaming(
        "router_scores",
        Work(0.0, 3 * logits + chosen, 7),
        Work(0.0, 2 * logits + chosen, 7),
        logits + chosen,
        logits,
    )
    return (Op("router", "gemm", work, work, weight, output=logits), scores)


def _shared(moe: Moe, hidden: int, tokens: int) -> tuple[Op, ...]:
    width = moe.shared_experts * moe.width
    if width == 0:
        return ()
    return (
        linear("shared_up", tokens, hidden, 2 * width, saved=ELEMENT * tokens * 2 * width),
        swiglu("shared_swiglu", tokens, width),
        linear("shared_down", tokens, width, hidden),
    )


def _copies(moe: Moe, hidden: int, tokens: int) -> int:
    """Bytes of one copy of each token per chosen expert."""
    return ELEMENT * tokens * moe.top_k * hidden


def _move(name: str, before: int, after: int, saved: float = 0.0) -> Op:
    """A kernel that reorders, copies or sums rows: reads `before` bytes, writes `after`; backward
    the other way."""
    moved = Work(0.0, before + after, 1)
    return streaming(name, moved, moved, saved, after)


def _sorted_after_exchange(moe: Moe, expert: int) -> bool:
    """Rows arrive by sender; a rank with several experts puts them in order of expert."""
    return 1 < expert < moe.experts


def _dispatch(moe: Moe, hidden: int, tokens: int, expert: int) -> tuple[Item, ...]:
    """Copies tokens to their experts. The last step makes the experts' input, which is kept."""
    copies, rows = _copies(moe, hidden, tokens), ELEMENT * tokens * hidden
    if expert == 1:
        return (_move("dispatch_permute", rows, copies, saved=copies),)
    sort = _sorted_after_exchange(moe, expert)
    kept = 0 if sort else copies
    return (
        _move("dispatch_permute", rows, copies),
        Exchange("dispatch", "expert", copies, "all_to_all", "all_to_all", kept),
        *((_move("dispatch_sort", copies, copies, saved=copies),) if sort else ()),
    )


def _experts(moe: Moe, hidden: int, tokens: int, expert: int) -> tuple[Op, ...]:
    rows, own, width = tokens * moe.top_k, moe.experts // expert, moe.width
    made = ELEMENT * rows * 2 * width
    return (
        grouped_linear("experts_up", rows, hidden, 2 * width, own, saved=made),
        swiglu("experts_swiglu", rows, width),
        grouped_linear("experts_down", rows, width, hidden, own),
    )


def _combine(moe: Moe, hidden: int, tokens: int, expert: int) -> tuple[Item, ...]:
    """Brings results back and sums them per token, and with the shared experts' output."""
    copies, rows = _copies(moe, hidden, tokens), ELEMENT * tokens * hidden
    sort = _sorted_after_exchange(moe, expert)
    exchange = Exchange("combine", "expert", copies, "all_to_all", "all_to_all")
    add = streaming("shared_add", Work(0.0, 3 * rows, 1), Work(), 0.0, rows)
    return (
        *((_move("combine_sort", copies, copies),) if sort else ()),
        *((exchange,) if expert > 1 else ()),
        _move("combine_unpermute", copies, rows),
        *((add,) if moe.shared_experts else ()),
    )
