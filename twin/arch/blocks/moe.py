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
- Tensor ranks do not cut router and shared experts: each is whole on every tensor rank. With
  sequence parallelism a tensor rank routes its own slice of tokens; without it, every tensor rank
  does the same work on the same tokens, wasteful but consistent (Megatron-LM refuses it).
- Expert-tensor ranks cut each expert as a feed-forward block: what arrives at each of them is
  gathered over all before the experts, and what comes out is reduce-scattered (Megatron-LM's
  `alltoall` dispatcher under `expert_tensor_parallel_size`), the other way round backward. The
  gathered rows are kept for the weights' gradients.
"""

from __future__ import annotations

from dataclasses import replace

from twin.arch.kernels import ELEMENT, SINGLE, grouped_linear, linear, matmul, streaming, swiglu
from twin.arch.ops import Exchange, Item, Op, Shape, Work
from twin.arch.parameters import Parameter, matrix, vector
from twin.spec.model import ModelSpec, Moe


def parameters(moe: Moe, model: ModelSpec) -> tuple[Parameter, ...]:
    """The weights of one MoE block; each expert is three matrices, shared experts fused to one."""
    hidden, shared = model.hidden, _shared_width(moe)
    bias = Parameter("router.bias", "router", "buffer", moe.experts)
    beside = (
        matrix("shared.up", "shared_experts", (hidden, shared), "replicated", 2),
        matrix("shared.down", "shared_experts", (shared, hidden), "replicated"),
        *((matrix("shared.gate", "shared_experts", (hidden, 1), "replicated"),) * moe.shared_gate),
    )
    return (
        matrix("router", "router", (hidden, moe.experts), "replicated"),
        *((bias,) if moe.correction_bias else ()),
        *(beside if shared else ()),
        matrix(
            "experts.up", "routed_experts", (hidden, moe.width), "expert_columns", 2 * moe.experts
        ),
        matrix("experts.down", "routed_experts", (moe.width, hidden), "expert_rows", moe.experts),
        *(_biases(moe, hidden) if moe.bias else ()),
    )


def _biases(moe: Moe, hidden: int) -> tuple[Parameter, ...]:
    """Of the router and of each expert's gate, up and down (gpt-oss); their additions ride on the
    GEMMs."""
    experts, part = moe.experts, "routed_experts"
    return (
        vector("router.added", "router", experts),
        Parameter("up.bias", part, "vector", moe.width, count=2 * experts, cut="expert_rows"),
        Parameter("down.bias", part, "vector", 1, hidden, experts, "expert_whole"),
    )


def _shared_width(moe: Moe) -> int:
    """Hidden width of all shared experts together."""
    return (moe.shared_width or moe.width * moe.shared_experts) if moe.shared_experts else 0


def items(moe: Moe, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From the normed hidden state to the block's output, before the residual."""
    tokens, hidden = shape.local_tokens, model.hidden
    return (
        *_router(moe, hidden, tokens),
        *_shared(moe, hidden, tokens),
        *_dispatch(moe, hidden, shape),
        *_experts(moe, hidden, shape),
        *_combine(moe, hidden, shape),
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
    return (Op("router", "gemm", work, work, weight, output=logits, input=rows), scores)


def _shared(moe: Moe, hidden: int, tokens: int) -> tuple[Op, ...]:
    width, rows = _shared_width(moe), ELEMENT * tokens * hidden
    if width == 0:
        return ()
    # The gate's gradient needs what the gate weighs.
    weigh = streaming("shared_weigh", Work(0.0, 2 * rows, 2), Work(0.0, 3 * rows, 2), rows, rows)
    gate = linear("shared_gate", tokens, hidden, 1, saved=ELEMENT * tokens)
    return (
        linear("shared_up", tokens, hidden, 2 * width, saved=ELEMENT * tokens * 2 * width),
        swiglu("shared_swiglu", tokens, width),
        linear("shared_down", tokens, width, hidden),
        *((gate, weigh) if moe.shared_gate else ()),
    )


def _copies(moe: Moe, hidden: int, tokens: int) -> int:
    """Bytes of one copy of each token per chosen expert."""
    return ELEMENT * tokens * moe.top_k * hidden


def _move(name: str, before: int, after: int) -> Op:
    """A kernel that reorders, copies or sums rows: reads `before` bytes, writes `after`; backward
    the other way."""
    moved = Work(0.0, before + after, 1)
    return streaming(name, moved, moved, 0.0, after)


def _sorted_after_exchange(moe: Moe, shape: Shape) -> bool:
    """Rows arrive by sender; a rank with several experts puts them in order of expert."""
    return shape.expert * shape.expert_tensor > 1 and shape.expert < moe.experts


def _dispatch(moe: Moe, hidden: int, shape: Shape) -> tuple[Item, ...]:
    """Copies tokens to their experts. The last step makes the experts' input, which is kept."""
    tokens = shape.local_tokens
    copies, rows = _copies(moe, hidden, tokens), ELEMENT * tokens * hidden
    arrived = copies * shape.expert_tensor
    steps: list[Item] = [_move("dispatch_permute", rows, copies)]
    if shape.expert > 1:
        steps.append(Exchange("dispatch", "expert", copies, "all_to_all", "all_to_all"))
    if shape.expert_tensor > 1:
        gather = Exchange(
            "dispatch_gather", "expert_tensor", arrived, "all_gather", "reduce_scatter"
        )
        steps.append(gather)
    if _sorted_after_exchange(moe, shape):
        steps.append(_move("dispatch_sort", arrived, arrived))
    return (*steps[:-1], replace(steps[-1], saved=arrived))


def _experts(moe: Moe, hidden: int, shape: Shape) -> tuple[Op, ...]:
    """As many rows as the expert-tensor ranks bring together, through a part of each expert."""
    rows = shape.local_tokens * moe.top_k * shape.expert_tensor
    own, width = moe.experts // shape.expert, moe.width // shape.expert_tensor
    made = ELEMENT * rows * 2 * width
    return (
        grouped_linear("experts_up", rows, hidden, 2 * width, own, saved=made),
        swiglu("experts_swiglu", rows, width),
        grouped_linear("experts_down", rows, width, hidden, own),
    )


def _combine(moe: Moe, hidden: int, shape: Shape) -> tuple[Item, ...]:
    """Brings results back and sums them per token, and with the shared experts' output."""
    tokens = shape.local_tokens
    copies, rows = _copies(moe, hidden, tokens), ELEMENT * tokens * hidden
    made = copies * shape.expert_tensor
    steps: list[Item] = []
    if _sorted_after_exchange(moe, shape):
        steps.append(_move("combine_sort", made, made))
    if shape.expert_tensor > 1:
        scatter = Exchange("combine_scatter", "expert_tensor", made, "reduce_scatter", "all_gather")
        steps.append(scatter)
    if shape.expert > 1:
        steps.append(Exchange("combine", "expert", copies, "all_to_all", "all_to_all"))
    steps.append(_move("combine_unpermute", copies, rows))
    if moe.shared_experts:
        steps.append(streaming("shared_add", Work(0.0, 3 * rows, 1), Work(), 0.0, rows))
    return tuple(steps)
