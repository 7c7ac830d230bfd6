"""Seconds of a pass from its kernels and exchanges, by what takes them.

Kernels run one after the other, each as `twin.hardware` prices it; collectives of tensor ranks wait
in line with them. The all-to-all either waits in line, too, or, with two halves that take turns, is
beside the kernels of the other half: a layer's kernels need C and its transfers M seconds, and
kernels run `s` times slower beside a transfer that holds SMs, so together they take
max(M, C + M (1 - 1/s)). Launches are those of CUDA graphs: each kernel adds its own, the host none.

Attention to cached tokens has no ramp: decode kernels split long contexts over all SMs, so that
what a short sequence loses to filling pipelines they do not. FlashMLA's published 660 TFLOP/s
(compute-bound) and 3,000 GB/s (memory-bound) on H800 check the two ceilings
(tests/inference/test_published.py). It breaks for contexts of a few hundred tokens in few
sequences.

The kernels of one prefill pass: prompts, or what is new of them, through all layers.

A forward pass of training with attention to what is cached before it, and the head for the last
token of each prompt only. Keys and values of the cached part are made whole from their latents
again, in each layer (vLLM and SGLang do so for prompts in chunks). Dispatch and combine are those
of DeepEP's normal kernels: one copy per node, passed on over NVLink. Left out: the transfer of the
cache to another engine that decodes.

The kernels of one decode step: one token of each sequence, against what is cached of it.

The linear layers, norms and experts are those of a training forward pass of as many tokens
(`twin.arch.stack`); what differs is made here. A latent attention works absorbed: queries go into
the space of the latent (h products of batch x nope by nope x rank), one kernel reads the 512 + 64
numbers that a token left behind, and outputs come back (DeepSeek-V2, arXiv:2405.04434, section
2.1.2; FlashMLA). Under tensor ranks each reads the whole latent, as their heads all need it. Of the
routed experts only those that some token chose are read: of E, with n tokens in the engine,
E (1 - (1 - k/E)^n) on average. Dispatch and combine are DeepEP's low-latency kernels: a copy per
chosen expert straight to its GPU, the sums inside the combine, no counts ahead, and no SMs held.

Drafted tokens (`speculation`) are verified by one pass: linear layers see all of them, and it reads
the cache once for all. The layer that drafts runs once for each before. A pass is told for each
token that it gives in the mean. Left out: sampling, quantising the cache, and what the layer that
drafts does with prompts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any, Final

from twin.arch.blocks.attention_mla import read_heads
from twin.arch.inference import index_bytes
from twin.arch.kernels import ELEMENT, FP8_WEIGHT, SINGLE, Matmul, linear, streaming
from twin.arch.mixer import CORE, SEQUENTIAL
from twin.arch.ops import Exchange, Item, Layer, Op, Shape, Work
from twin.arch.remembered import remembered
from twin.arch.stack import attention, block, heads, kinds, layers, mixer_of
from twin.collectives.deepep import deepep
from twin.collectives.spread import Spread, spread
from twin.collectives.traffic import alone, chosen, traffic
from twin.hardware.roofline import Price, price, slowdown
from twin.inference.engine import INT4, Cause, Engine, Pass
from twin.inference.host import hosted, kernels_of, sampling
from twin.network.links import capacity
from twin.spec.model import GroupedAttention, LatentAttention

CACHED = "attention_cached"
"""The name of the kernel that reads the cache."""
INDEXED = "index_cached"
"""The name of the kernel that scores cached tokens."""


@dataclass(frozen=True, slots=True)
class _Half:
    """Seconds of one layer, of one half or of all of it."""

    causes: Mapping[Cause, float]
    """Of what runs in line."""
    sm_bound: float
    """Of these, what fewer SMs lengthen."""
    expert: float
    """Of the all-to-all."""


@remembered(4096)
def decode_pass(engine: Engine, batch: int, cached: float) -> Pass:
    """One step of `batch` sequences in each group, with `cached` tokens each on average, for each
    token that it gives them."""
    halves, items = decode_halves(engine, batch, cached)
    made = (_in_turns if halves == 2 else _in_line)(engine, items, "decode")
    whole = _hosted(engine, made, items, (halves, batch, batch * (1 + engine.drafts)))
    return whole.each(engine.spec.speculation.emitted) if engine.spec.speculation else whole


def decode_halves(
    engine: Engine, batch: int, cached: float
) -> tuple[int, dict[str, tuple[Item, ...]]]:
    """How many parts of a step take turns, 2 or 1, and what one of them runs on one GPU; of an odd
    number of sequences both halves are priced as the larger one."""
    if engine.spec.two_batches and _exchanges(engine) and batch > 1:
        return 2, decode_items(engine, -(-batch // 2), cached)
    return 1, decode_items(engine, batch, cached)


@remembered(4096)
def prefill_pass(engine: Engine, prompts: int, new: int, cached: int = 0) -> Pass:
    """One pass of `prompts` prompts in each group, of which `new` tokens each are not cached. Its
    two halves have half of the prompts, or of the one prompt's tokens."""
    if not (engine.spec.two_batches and _exchanges(engine) and prompts * new > 1):
        items = prefill_items(engine, prompts, new, cached)
        whole = _in_line(engine, items, "prefill")
        return _hosted(engine, whole, items, (1, prompts, prompts * new))
    if prompts > 1:
        halves = prefill_items(engine, -(-prompts // 2), new, cached)
    else:
        # The second half also sees the first, so the mean half sees a quarter of them more.
        halves = prefill_items(engine, 1, -(-new // 2), cached + new // 4)
    made = _in_turns(engine, halves, "prefill")
    return _hosted(engine, made, halves, (2, prompts, prompts * new))


def _exchanges(engine: Engine) -> bool:
    return engine.expert_ranks > 1


def _in_line(engine: Engine, items: Mapping[str, tuple[Item, ...]], of: str) -> Pass:
    total: defaultdict[Cause, float] = defaultdict(float)
    for kind, count in layer_counts(engine, items).items():
        layer = _layer(engine, items[kind], of)
        for cause, seconds in layer.causes.items():
            total[cause] += count * seconds
        total["expert"] += count * layer.expert
    return Pass(total)


def _in_turns(engine: Engine, items: Mapping[str, tuple[Item, ...]], of: str) -> Pass:
    total: defaultdict[Cause, float] = defaultdict(float)
    hidden = 0.0
    for kind, count in layer_counts(engine, items).items():
        layer = _layer(engine, items[kind], of)
        kernels, moved = 2 * sum(layer.causes.values()), 2 * layer.expert
        bound = 2 * layer.sm_bound / kernels if kernels else 0.0
        slow = slowdown(bound, *_held(engine, of)) if moved else 1.0
        together = max(moved, kernels + moved * (1 - 1 / slow))
        for cause, seconds in layer.causes.items():
            total[cause] += count * 2 * seconds
        total["expert"] += count * (together - kernels)
        hidden += count * (moved - max(0.0, together - kernels))
    return Pass(total, hidden)


DRAFT: Final = "draft"
"""What the layer that drafts is called among the kinds of layers."""


def layer_counts(engine: Engine, items: Mapping[str, tuple[Item, ...]]) -> Counter[str]:
    """How often a pass runs each kind of layer."""
    found = Counter(kinds(engine.model))
    if DRAFT in items:
        found[DRAFT] = engine.drafts
    return found


def _hosted(
    engine: Engine,
    one: Pass,
    items: Mapping[str, tuple[Item, ...]],
    sizes: tuple[int, int, int],
) -> Pass:
    """A pass with its host; `sizes`: its halves, sequences and tokens of a group."""
    halves, sequences, rows = sizes
    kernels = halves * kernels_of(items, layer_counts(engine, items))
    return hosted(engine, one, sequences, kernels, rows)


def _held(engine: Engine, of: str) -> tuple[int, int, float]:
    """SMs that the all-to-all holds, of how many, and what kernels lose beside: low-latency kernels
    hold none while they wait (DeepSeek's profile-data, README, decoding)."""
    own = engine.calibration
    return 0 if of == "decode" else own.expert_sms, engine.cluster.node.gpu.sms, own.contention


def _layer(engine: Engine, items: Iterable[Item], of: str) -> _Half:
    causes: defaultdict[Cause, float] = defaultdict(float)
    bound = expert = 0.0
    for item in items:
        if isinstance(item, Op):
            if not item.forward.kernels:
                continue
            cost = price_of(engine, item)
            compute = cost.arithmetic >= cost.memory
            causes["arithmetic" if compute else "memory"] += cost.busy
            causes["launches"] += cost.launch
            bound += cost.seconds * cost.sm_bound
        elif item.forward is not None:
            seconds = exchanged(engine, item, of)
            if item.group == "expert":
                expert += seconds
            else:
                causes["tensor"] += seconds
    return _Half(causes, bound, expert)


def price_of(engine: Engine, op: Op) -> Price:
    """What the forward kernels of an op cost on the engine's GPU."""
    own = engine.calibration
    if op.name in (CACHED, INDEXED):
        flat: dict[str, Any] = {"attention_forward_ramp": 0.0, "attention_forward_width": 0.0}
        own = own.model_copy(update=flat)
    return price(op.kind, op.forward, engine.cluster.node.gpu, own)


def exchanged(engine: Engine, item: Exchange, of: str) -> float:
    """Seconds of a collective on idle links."""
    cluster, size, kind = engine.cluster, item.payload(), item.forward
    assert kind is not None, "it has a forward"
    if item.group != "expert":
        library = chosen(cluster, "auto", kind, size, engine.sharers)
        found = alone(library, cluster, engine.sharers)
        return min(found, _reduced(engine, size)) if kind == "all_reduce" else found
    found = spread_of(engine) if of == "prefill" else None
    where = engine.everyone
    # Low-latency kernels write to all peers themselves, at once.
    plain = replace(traffic("all_to_all", size, where), peers=0)
    flow = deepep(size, found, where) if found else plain
    return alone(flow, cluster, where)


def _reduced(engine: Engine, size: float) -> float:
    """Seconds of an all-reduce by the framework's own kernel, which reads what other GPUs have over
    NVLink: at once, S (n - 1) bytes; or a part of it, and then the sums of others' parts, each
    S (n - 1) / n. Of many nodes it has none."""
    own, ranks = engine.spec.software, engine.sharers
    if own is None or not own.reduce_start or ranks.nodes > 1:
        return inf
    rate = own.reduce_share * capacity(engine.cluster, "nvlink")
    read = size * (ranks.size - 1) / rate
    return min(own.reduce_start + read, 2 * (own.reduce_start + read / ranks.size))


_COUNTED_AHEAD = frozenset({"expert_counts"})


def prefill_items(
    engine: Engine, prompts: int, new: int, cached: int
) -> dict[str, tuple[Item, ...]]:
    """Kernels and exchanges of each kind of layer, on one GPU, for a pass of `prompts` prompts in
    each group, of which `new` tokens each are not `cached`."""
    shape = _shape(engine, prompts, new)
    found: dict[str, tuple[Item, ...]] = {}
    for kind, layer in zip(kinds(engine.model), layers(engine.model, shape), strict=True):
        if kind not in found:
            found[kind] = _items(engine, shape, layer, (prompts, new, cached), mixer_of(kind))
    return found


def spread_of(engine: Engine) -> Spread | None:
    """Over how many GPUs and nodes the experts of a token lie; None where none are elsewhere."""
    moe = engine.model.moe
    if moe is None or engine.expert_ranks == 1:
        return None
    return spread(moe.experts, moe.top_k, engine.everyone, moe.groups, moe.top_groups)


def _shape(engine: Engine, prompts: int, new: int) -> Shape:
    spec, found = engine.spec, spread_of(engine)
    return Shape(
        sequences=prompts,
        sequence=ceil(new / spec.tensor) * spec.tensor,
        tensor=spec.tensor,
        expert=engine.expert_ranks,
        sequence_parallel=engine.sliced,
        expert_load=engine.expert_load,
        arriving=found.ranks * engine.expert_load if found else None,
        precision=spec.precision,
    )


def _items(
    engine: Engine, shape: Shape, layer: Layer, sizes: tuple[int, int, int], mixer: str
) -> tuple[Item, ...]:
    if layer.kind == "head":
        return head_items(engine, sizes[0])
    found: list[Item] = []
    for item in layer.items:
        if item.name in _COUNTED_AHEAD:
            continue
        if item.name == "attention_flash" and isinstance(item, Op) and sizes[2]:
            found += (*_made_again(engine, shape, sizes), _longer(engine, item, sizes, mixer))
        elif item.name == "index_scores" and isinstance(item, Op):
            found.append(_all_scored(engine, item, sizes))
        elif item.name in ("experts_up", "experts_down") and isinstance(item, Op):
            found.append(touched(engine, shape, item))
        else:
            found.append(item)
    return (*found, *_summed(engine, shape, layer))


def _longer(engine: Engine, op: Op, sizes: tuple[int, int, int], mixer: str) -> Op:
    """Attention of the new tokens to the cached ones, too."""
    prompts, new, cached = sizes
    own, tensor, latent = heads(engine.model, mixer), engine.spec.tensor, engine.model.attention
    if isinstance(latent, LatentAttention) and latent.indexer is not None:
        own = read_heads(latent)
    both = own.qk_dim + own.v_dim
    flop = 2.0 * prompts * new * own.earlier(new, cached) * own.query / tensor * both
    read = 2.0 * prompts * cached * max(1, own.key_value / tensor) * both
    return replace(op, forward=op.forward + Work(flop, read, 0, width=op.forward.width))


def _all_scored(engine: Engine, op: Op, sizes: tuple[int, int, int]) -> Op:
    """An indexer's scores of the cached tokens, too."""
    (prompts, new, cached), own = sizes, engine.model.attention
    if not isinstance(own, LatentAttention) or own.indexer is None:
        return op
    flop = 2.0 * prompts * new * cached * own.indexer.heads * own.indexer.head_dim
    moved = float(prompts * cached * index_bytes(own) + SINGLE * prompts * new * cached)
    return replace(op, forward=op.forward + Work(flop, moved, 0, width=op.forward.width))


def _made_again(engine: Engine, shape: Shape, sizes: tuple[int, int, int]) -> tuple[Op, ...]:
    """Whole keys and values of the cached tokens from their latents."""
    own, (prompts, _, cached) = engine.model.attention, sizes
    if not isinstance(own, LatentAttention) or own.indexer is not None:
        return ()
    width = own.heads // shape.tensor * (own.qk_nope_head_dim + own.v_head_dim)
    product = Matmul(prompts * cached, own.kv_lora_rank, width, precision=shape.precision)
    return (linear("kv_up_cached", product),)


_MADE_HERE = SEQUENTIAL | {
    "kv_up", "mla_rope", "attention_flash", "absorb_query", "absorb_value", "index_scores",
    "index_choice", "index_chosen",
}  # fmt: skip
_INSIDE_THE_EXCHANGE = frozenset(
    {"expert_counts", "dispatch_permute", "dispatch_sort", "combine_sort", "combine_unpermute"}
)


def decode_items(engine: Engine, batch: int, cached: float) -> dict[str, tuple[Item, ...]]:
    """Kernels and exchanges of each kind of layer, on one GPU, for a step of `batch` sequences in
    each group that have `cached` tokens each, on average."""
    shape = step_shape(engine, batch * (1 + engine.drafts))
    stack = layers(engine.model, shape)
    found: dict[str, tuple[Item, ...]] = {}
    for kind, layer in zip(kinds(engine.model), stack, strict=True):
        if kind not in found:
            found[kind] = _decode_items(engine, shape, layer, (batch, cached), mixer_of(kind))
    if engine.drafts:
        found[DRAFT] = _draft(engine.without_drafts, batch, cached)
    return found


def _draft(engine: Engine, batch: int, cached: float) -> tuple[Item, ...]:
    """One token of each sequence by the layer that drafts, and its head."""
    own, last, hidden = decode_items(engine, batch, cached), draft_kind(engine), engine.model.hidden
    joined = Matmul(step_shape(engine, batch).local_tokens, 2 * hidden, hidden)
    return (linear("draft_projection", joined), *own[last], *own["head"])


def draft_kind(engine: Engine) -> str:
    """The kind of the model's last layer, which the layer that drafts is like."""
    return kinds(engine.model)[-2]


def step_shape(engine: Engine, rows: int) -> Shape:
    """What a layer sees of so many rows of a group; rows are padded to whole ones per rank."""
    spec = engine.spec
    return Shape(
        sequences=1,
        sequence=ceil(rows / spec.tensor) * spec.tensor,
        tensor=spec.tensor,
        expert=engine.expert_ranks,
        sequence_parallel=engine.sliced,
        expert_load=engine.expert_load,
        precision=spec.precision,
    )


def _decode_items(
    engine: Engine, shape: Shape, layer: Layer, sizes: tuple[int, float], mixer: str
) -> tuple[Item, ...]:
    if layer.kind == "head":
        return head_items(engine, shape.tokens)
    found: list[Item] = []
    for item in layer.items:
        if item.name in _INSIDE_THE_EXCHANGE and (_exchanges(engine) or not _serves(engine)):
            continue
        if item.name == "attention_flash":
            found += _attention(engine, shape.tokens, sizes, mixer)
        elif item.name == CORE and (own := block(engine.model)) is not None:
            found.append(own.step(sizes[0] * (1 + engine.drafts), engine.spec.tensor))
        elif item.name in ("experts_up", "experts_down") and isinstance(item, Op):
            found.append(touched(engine, shape, item))
        elif item.name not in _MADE_HERE:
            found.append(item)
    return (*found, *_summed(engine, shape, layer))


def _serves(engine: Engine) -> bool:
    return engine.spec.software is not None


def _summed(engine: Engine, shape: Shape, layer: Layer) -> tuple[Exchange, ...]:
    """The results of experts that tensor ranks have parts of."""
    if engine.spec.experts == "spread" or shape.tensor == 1 or layer.kind != "moe":
        return ()
    size = float(ELEMENT * shape.tokens * engine.model.hidden)
    return (Exchange("experts_reduce", "tensor", size, "all_reduce", None),)


def head_items(engine: Engine, rows: int) -> tuple[Item, ...]:
    """The projection of so many rows to the vocabulary, and the logits of one rank gathered."""
    tensor, model = engine.spec.tensor, engine.model
    product = Matmul(rows, model.hidden, model.vocab // tensor)
    gather = Exchange("logits", "tensor", float(ELEMENT * rows * model.vocab), "all_gather", None)
    gathered = (gather,) if tensor > 1 else ()
    return (linear("head", product), *gathered, *sampling(engine, rows))


def _attention(engine: Engine, rows: int, sizes: tuple[int, float], mixer: str) -> Iterable[Op]:
    """From queries to the input of the output projection: `rows` new tokens of so many sequences,
    each of which has so many cached ones."""
    own, tensor, size = attention(engine.model, mixer), engine.spec.tensor, engine.cache_element
    (batch, cached), query, new = sizes, own.heads // tensor, 1 + engine.drafts
    match own:
        case LatentAttention():
            latent, rank = own.kv_lora_rank + own.qk_rope_head_dim, own.kv_lora_rank
            tokens = batch * read_heads(own).read(cached)
            core = _core(rows, new * tokens, query, (latent, rank), tokens * size * latent)
            return (
                _absorb("absorb_query", rows, query, own.qk_nope_head_dim, rank),
                _written(rows, query * own.qk_rope_head_dim + latent, _single(engine)),
                *_indexed(own, batch * cached, new),
                core,
                _absorb("absorb_value", rows, query, rank, own.v_head_dim),
            )
        case GroupedAttention():
            tokens = batch * heads(engine.model, mixer).read(cached)
            pairs = max(1, own.kv_heads // tensor)
            read = tokens * size * 2 * pairs * own.head_dim
            width = query * own.head_dim + 2 * pairs * own.head_dim
            core = _core(rows, new * tokens, query, (own.head_dim, own.head_dim), read)
            return (_written(rows, width), core)


def _indexed(attention: LatentAttention, tokens: float, new: int) -> tuple[Op, ...]:
    """An indexer's scores of so many cached tokens, which it has in FP8, for so many new tokens of
    each sequence, and the choice of the best; whole on every tensor rank."""
    own = attention.indexer
    if own is None:
        return ()
    scores, flop = SINGLE * tokens * new, 2.0 * tokens * new * own.heads * own.head_dim
    moved = tokens * index_bytes(attention) + scores
    return (
        Op(INDEXED, "attention", Work(flop, moved, 1, width=float(own.head_dim)), Work()),
        streaming("index_choice", Work(0.0, 2.0 * scores, 2), Work(), 0.0, 0.0),
    )


def _core(rows: int, tokens: float, heads: int, widths: tuple[int, int], read: float) -> Op:
    """The kernel that reads the cache."""
    both = sum(widths)
    moved = read + ELEMENT * rows * heads * both
    work = Work(2.0 * tokens * heads * both, moved, 1, width=both / 2)
    return Op("attention_cached", "attention", work, Work())


def _absorb(name: str, rows: int, heads: int, inputs: int, outputs: int) -> Op:
    """A product per head with a part of the up-projection, all in one kernel, in bf16."""
    flop = 2.0 * rows * heads * inputs * outputs
    moved = ELEMENT * heads * (inputs * outputs + rows * (inputs + outputs))
    return Op(name, "gemm", Work(flop, float(moved), 1), Work())


def _single(engine: Engine) -> int:
    """Kernels around latent attention that only a compiler fuses."""
    own = engine.spec.software
    return own.latent_kernels if own is not None and engine.spec.eager else 0


def _written(rows: int, values: int, more: int = 0) -> Op:
    """Rotary positions and the write to the cache: one kernel, and so many `more` small ones."""
    moved = 2.0 * ELEMENT * rows * values
    return streaming("cache_write", Work(0.0, moved, 1 + more), Work(), 0.0, 0.0, "rotary")


def touched(engine: Engine, shape: Shape, op: Op) -> Op:
    """A product of the experts that reads only those that some token of the engine chose."""
    moe, product = engine.model.moe, op.forward.product
    if moe is None or product is None:
        return op
    tokens = shape.tokens * engine.groups
    own = moe.experts // shape.expert
    chosen = own * (1.0 - (1.0 - moe.top_k / moe.experts) ** tokens)
    groups = max(1, min(own, ceil(chosen)))
    matmul = Matmul(product.rows, product.k, product.cols, groups, product.precision)
    work = matmul.forward()
    if engine.spec.expert_weights is not None:
        kept = FP8_WEIGHT if product.precision == "fp8" else ELEMENT
        work = replace(work, bytes=work.bytes - (kept - INT4) * groups * product.k * product.cols)
    return replace(op, forward=work)
