"""Mixture of experts: router, shared experts, and routed experts over an expert group. Experts are
SwiGLU, or two matrices with a squared ReLU between (Nemotron 3).

Each rank of the expert group brings its own tokens; how they reach their experts and come back is
a dispatcher's (`twin.arch.dispatchers`). The mean rank's experts get tokens x top-k rows; the rank
that is looked at gets `Shape.expert_load` times that (`twin.routing`), and brings as many tokens as
any. Of the all-to-all its fuller direction counts: forward it receives more than it sends.

In FP8 (`twin.arch.fp8`) tokens are cast before they are dispatched, and their gradients before they
follow in the backward pass of the combine; the combine, and the gradients that dispatch brings
back, stay in bf16 (DeepSeek-V3, section 3.3.3).

Shared experts read what the router reads and no exchange: they stand right behind the dispatch,
marked `aside`. Forward they may run under it, and backward, in reverse order, under its gradient's
way back. (DeepSeek-V3's own overlap hides them in this way, between chunks that are paired.)
Without `Shape.overlap_shared` they wait for it.

With a latent width (Nemotron 3 Super, arXiv:2512.20856, section 2) one matrix projects tokens down
before they are dispatched, and another the sum of their experts up; router and shared experts read
tokens as they are. Both matrices are whole on every tensor rank.

Assumptions, all named:
- The router multiplies bf16 by bf16 into fp32 logits (Megatron-LM's router gating with fp32
  output); scores and choice are fp32. A true fp32 GEMM would be slower by the ratio of the peaks.
- Routing weights multiply inside the experts' SwiGLU, before the down-projection (Megatron-LM,
  `weighted_bias_swiglu_impl`), so that the down-projection's output is not kept. With
  `Shape.weigh_outputs` they multiply it in fp32 instead (torchtitan, `MoE.forward`): the fp32 copy
  is kept for the weights' gradient, 4 x top-k x hidden bytes per token.
- A layer that runs again asks for numbers of rows again.
- With `Shape.pads` rows are copied once more before and behind the experts, both ways.
- Experts that give a token back as it came (`Moe.zero_experts`, LongCat-Flash) are the router's
  alone: such a token stays where it is.
- Experts of one rank get the same rows each; a grouped GEMM is slower where they do not, because
  the last tile of each expert is not full.
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

from twin.arch.dispatchers import chosen
from twin.arch.dispatchers.base import Way, held, load
from twin.arch.fp8 import arrived, cast, grouped, projection, turns
from twin.arch.kernels import ELEMENT, FP8, SINGLE, Matmul, activation, linear, streaming
from twin.arch.ops import Exchange, Item, Op, Shape, Work
from twin.arch.parameters import Parameter, matrix, vector
from twin.spec.model import ModelSpec, Moe


def parameters(moe: Moe, model: ModelSpec) -> tuple[Parameter, ...]:
    """The weights of one MoE block; each expert is three matrices, or two, shared experts fused to
    one."""
    hidden, shared, up = model.hidden, _shared_width(moe), _up(moe)
    routed = moe.latent or hidden
    choices = moe.experts + moe.zero_experts
    bias = Parameter("router.bias", "router", "buffer", choices)
    beside = (
        matrix("shared.up", "shared_experts", (hidden, shared), "replicated", up),
        matrix("shared.down", "shared_experts", (shared, hidden), "replicated"),
        *((matrix("shared.gate", "shared_experts", (hidden, 1), "replicated"),) * moe.shared_gate),
    )
    return (
        matrix("router", "router", (hidden, choices), "replicated"),
        *((bias,) if moe.correction_bias else ()),
        *(beside if shared else ()),
        *((matrix("latent", "router", (hidden, routed), "replicated", 2),) if moe.latent else ()),
        matrix(
            "experts.up", "routed_experts", (routed, moe.width), "expert_columns", up * moe.experts
        ),
        matrix("experts.down", "routed_experts", (moe.width, routed), "expert_rows", moe.experts),
        *(_biases(moe, routed) if moe.bias else ()),
    )


def _up(moe: Moe) -> int:
    """Matrices of an expert before its activation: gate and up, or one."""
    return 1 if moe.ungated else 2


def _activated(name: str, moe: Moe, rows: int, width: int) -> Op:
    return activation(name, "squared_relu" if moe.ungated else "swiglu", rows, width)


def _biases(moe: Moe, hidden: int) -> tuple[Parameter, ...]:
    """Of the router and of each expert's gate, up and down (gpt-oss); additions ride on the GEMMs,
    but for that of down, which routing weights multiply."""
    experts, part = moe.experts, "routed_experts"
    return (
        vector("router.added", "router", experts),
        Parameter(
            "up.bias", part, "vector", moe.width, count=_up(moe) * experts, cut="expert_rows"
        ),
        Parameter("down.bias", part, "vector", 1, hidden, experts, "expert_whole"),
    )


def _shared_width(moe: Moe) -> int:
    """Hidden width of all shared experts together."""
    return (moe.shared_width or moe.width * moe.shared_experts) if moe.shared_experts else 0


def items(moe: Moe, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From the normed hidden state to the block's output, before the residual."""
    hidden, routed = model.hidden, moe.latent or model.hidden
    shared, latent, shape = shape.of("shared_experts"), shape.of("latent"), shape.of("experts")
    way = Way.of(moe, routed, shape)
    dispatch = _kept(way, moe, shape)
    sent = next((i + 1 for i, item in enumerate(dispatch) if item.name == "dispatch"), 0)
    part = 1.0 if shape.kept_load is None else shape.kept_load / shape.expert_load
    return (
        *_router(moe, hidden, shape),
        *(_latent("dispatch_latent", (hidden, routed), latent) if moe.latent else ()),
        *dispatch[:sent],
        *(
            replace(op, aside=sent > 0 and shape.overlap_shared)
            for op in _shared(moe, hidden, shared)
        ),
        *(
            _loaded(_keeping(item, part), shape.expert_load)
            for item in (*dispatch[sent:], *_experts(moe, routed, shape))
        ),
        *_combine(way, moe, hidden, shape, latent),
    )


def _latent(name: str, sizes: tuple[int, int], shape: Shape) -> tuple[Op, ...]:
    """The projection of tokens down to the latent width, or of the experts' sum up, which is
    kept. What goes down is a norm's output, kept by that."""
    tokens = shape.local_tokens
    kept = float(ELEMENT * tokens * sizes[0]) if name == "combine_latent" else 0.0
    return projection(name, shape, (tokens, *sizes), kept)


def _loaded(item: Item, load: float) -> Item:
    """The item, marked with the rows of its rank where it is an op."""
    return replace(item, load=load) if isinstance(item, Op) else item


def _keeping(item: Item, part: float) -> Item:
    """The item with this part of what it keeps: the simulated rank is the fullest in every layer,
    but does not keep as much of every layer."""
    if isinstance(item, Op):
        return replace(item, saved=part * item.saved, late=part * item.late)
    return replace(item, saved=part * item.saved)


def _router(moe: Moe, hidden: int, shape: Shape) -> tuple[Op, ...]:
    """Logits, then scores, top-k and weights. Keeps the fp32 scores, and 4 + 4 bytes for the
    weight and the index of each choice. Eager kernels: score, bias, top-k, gather, sum, divide,
    scale."""
    tokens, choices = shape.local_tokens, moe.experts + moe.zero_experts
    logits = SINGLE * tokens * choices
    chosen = 2 * SINGLE * tokens * moe.top_k
    gating = linear("router", Matmul(tokens, hidden, choices, accumulate=shape.accumulate))
    wider = (SINGLE - ELEMENT) * tokens * choices  # logits and their gradients are fp32
    forward, backward, weight = (
        replace(work, bytes=work.bytes + wider)
        for work in (gating.forward, gating.backward, gating.weight)
    )
    gating = replace(
        gating,
        forward=forward,
        backward=backward,
        weight=weight,
        output=logits,
        late=gating.late + wider,
    )
    scores = streaming(
        "router_scores",
        Work(0.0, 3 * logits + chosen, 7),
        Work(0.0, 2 * logits + chosen, 7),
        logits + chosen,
        logits,
        "routing",
    )
    return (gating, scores)


def _shared(moe: Moe, hidden: int, shape: Shape) -> tuple[Op, ...]:
    width, tokens = _shared_width(moe), shape.local_tokens
    if width == 0:
        return ()
    rows = ELEMENT * tokens * hidden
    # The gate's gradient needs what the gate weighs.
    weigh = streaming("shared_weigh", Work(0.0, 2 * rows, 2), Work(0.0, 3 * rows, 2), rows, rows)
    gate = linear(
        "shared_gate",
        Matmul(tokens, hidden, 1, accumulate=shape.accumulate),
        saved=ELEMENT * tokens,
    )
    wide = _up(moe) * width
    up, down = (tokens, hidden, wide), (tokens, width, hidden)
    return (
        *arrived("shared", float(tokens * hidden), shape),
        *projection("shared_up", shape, up, saved=ELEMENT * tokens * wide),
        *cast(_activated("shared", moe, tokens, width), shape),
        *projection("shared_down", shape, down),
        *((gate, weigh) if moe.shared_gate else ()),
    )


def _kept(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Copies tokens to their experts. The last step makes the experts' input, which is kept, or its
    cast."""
    steps = (
        *chosen(shape).dispatch(way, moe, shape),
        *_padded("experts_pad", way.width, way, shape),
    )
    keeps = (*steps[:-1], replace(steps[-1], saved=way.width * way.routed))
    if not shape.per_tensor:
        return keeps
    casts = arrived("experts", way.routed, shape, held(moe, shape))
    return (*(keeps if shape.by_rows else steps), *casts)


def _experts(moe: Moe, hidden: int, shape: Shape) -> tuple[Op, ...]:
    """As many rows as the expert-tensor ranks bring together, through a part of each expert."""
    rows = round(shape.local_tokens * moe.top_k * shape.expert_tensor * load(shape))
    own, width = moe.experts // shape.expert, moe.width // shape.expert_tensor
    wide = _up(moe) * width
    up = Matmul(rows, hidden, wide, own, shape.precision, shape.accumulate)
    down = Matmul(rows, width, hidden, own, shape.precision, shape.accumulate)
    return (
        replace(linear("experts_up", up, ELEMENT * rows * wide), kind="grouped_gemm"),
        *turns("experts_up", up, shape),
        *((_clamped(rows * width),) if moe.clamp is not None else ()),
        *grouped(_activated("experts", moe, rows, width), own, shape),
        replace(linear("experts_down", down), kind="grouped_gemm"),
        *turns("experts_down", down, shape, arrives=True),
        *((_biased(rows * hidden, own),) if moe.bias else ()),
        *((_weighed(rows * hidden),) if shape.weigh_outputs else ()),
        *_padded("experts_unpad", ELEMENT, Way.of(moe, hidden, shape), shape),
    )


def _padded(name: str, width: float, way: Way, shape: Shape) -> tuple[Op, ...]:
    """Rows copied so that each expert's number of them is a multiple of 16 (32 with scales of 32
    values), and routing weights with them; or back. The gradients go the other way (Transformer
    Engine, `Fp8Padding` and `Fp8Unpadding`; Megatron-LM, `TEGroupedMLP.forward`). The padding
    itself, half a multiple per expert, is left out."""
    if not shape.pads:
        return ()
    moved = 2.0 * width * way.routed
    both = Work(0.0, moved, 2 if name == "experts_pad" else 1)
    return (streaming(name, both, both, 0.0, width * way.routed, "bandwidth"),)


def _clamped(values: int) -> Op:
    """Gate and up, of so many values each, cut off by kernels of their own before the fused
    activation (Megatron-LM, `weighted_bias_quick_geglu_impl`): two clamps and one that joins their
    results. Backward the two clamps, which read what they read before, and one that joins."""
    both = 2.0 * ELEMENT * values
    forward, backward = Work(0.0, 4 * both, 3), Work(0.0, 5 * both, 3)
    return streaming("experts_clamp", forward, backward, both, both, "activation")


def _biased(values: int, experts: int) -> Op:
    """Routing weights times the bias of each expert's down-projection, added expert by expert
    (Megatron-LM, `TEGroupedMLP._apply_bias`). The weights are fp32, and so is all until the last
    cast: the product and the sum of each expert, one that joins them, the cast. Backward a cast,
    for each expert a cast of the rows' gradient and a product and its sum for both factors, and one
    that joins."""
    product, total, join = SINGLE, ELEMENT + 2 * SINGLE, 2 * SINGLE
    cast, reduced = ELEMENT + SINGLE, 3 * SINGLE
    forward = Work(0.0, float(values * (product + total + join + cast)), 2 * experts + 2)
    gradients = 2 * cast + 2 * reduced + 2 * ELEMENT
    backward = Work(0.0, float(values * gradients), 5 * experts + 2)
    return streaming("experts_bias", forward, backward, 0.0, float(SINGLE * values))


def _weighed(values: int) -> Op:
    """Routing weights times what experts give: a cast to fp32, the product, a cast back, each a
    kernel; backward a cast, the products for both gradients, a cast. Backward the cast gradient and
    both products are there at a time, in fp32; the gradient of the rows, which is counted with the
    op before, is part of these."""
    single, cast = SINGLE * values, (ELEMENT + SINGLE) * values
    forward = Work(0.0, 2.0 * cast + 2.0 * single, 3)
    backward = Work(0.0, 2.0 * cast + 4.0 * single, 4)
    there = 3 * single - ELEMENT * values
    return streaming("experts_weigh", forward, backward, single, there)


def _combine(way: Way, moe: Moe, hidden: int, shape: Shape, latent: Shape) -> tuple[Item, ...]:
    """Brings results back and sums them per token, and with the shared experts' output."""
    back = chosen(shape).combine(way, moe, shape)
    sent = next((i for i, item in enumerate(back) if isinstance(item, Exchange)), 0)
    steps = [*(_loaded(item, shape.expert_load) for item in back[:sent]), *back[sent:]]
    if shape.precision == "fp8" and not shape.per_tensor:
        quantise = Work(0.0, (ELEMENT + FP8) * way.tokens, 1)
        steps.append(Op("combine_cast", "cast", Work(), quantise))
    if moe.latent:
        steps += _latent("combine_latent", (moe.latent, hidden), latent)
    if moe.shared_experts:
        rows = float(ELEMENT * shape.local_tokens * hidden)
        steps.append(streaming("shared_add", Work(0.0, 3 * rows, 1), Work(), 0.0, rows))
    return tuple(steps)
