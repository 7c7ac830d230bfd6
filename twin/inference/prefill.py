"""The kernels of one prefill pass: prompts, or what is new of them, through all layers.

A forward pass of training with attention to what is cached before it, and the head for the last
token of each prompt only. Keys and values of the cached part are made whole from their latents
again, in each layer (vLLM and SGLang do so for prompts in chunks). Dispatch and combine are those
of DeepEP's normal kernels: one copy per node, passed on over NVLink. Left out: the transfer of the
cache to another engine that decodes.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from twin.arch.kernels import Matmul, linear
from twin.arch.ops import Item, Layer, LayerKind, Op, Shape, Work
from twin.arch.stack import heads, kinds, layers
from twin.collectives.spread import Spread, spread
from twin.inference.decode import head_items, touched
from twin.inference.engine import Engine
from twin.spec.model import LatentAttention

_COUNTED_AHEAD = frozenset({"expert_counts"})


def prefill_items(
    engine: Engine, prompts: int, new: int, cached: int
) -> dict[LayerKind, tuple[Item, ...]]:
    """Kernels and exchanges of each kind of layer, on one GPU, for a pass of `prompts` prompts in
    each group, of which `new` tokens each are not `cached`."""
    shape = _shape(engine, prompts, new)
    found: dict[LayerKind, tuple[Item, ...]] = {}
    for kind, layer in zip(kinds(engine.model), layers(engine.model, shape), strict=True):
        if kind not in found:
            found[kind] = _items(engine, shape, layer, (prompts, new, cached))
    return found


def spread_of(engine: Engine) -> Spread | None:
    """Over how many GPUs and nodes the experts of a token lie; None where none are elsewhere."""
    moe = engine.model.moe
    if moe is None or engine.spec.gpus == 1:
        return None
    return spread(moe.experts, moe.top_k, engine.everyone, moe.groups, moe.top_groups)


def _shape(engine: Engine, prompts: int, new: int) -> Shape:
    spec, found = engine.spec, spread_of(engine)
    return Shape(
        sequences=prompts,
        sequence=ceil(new / spec.tensor) * spec.tensor,
        tensor=spec.tensor,
        expert=spec.gpus if engine.model.moe else 1,
        sequence_parallel=spec.tensor > 1,
        expert_load=spec.expert_load,
        arriving=found.ranks * spec.expert_load if found else None,
        precision=spec.precision,
    )


def _items(
    engine: Engine, shape: Shape, layer: Layer, sizes: tuple[int, int, int]
) -> tuple[Item, ...]:
    if layer.kind == "head":
        return head_items(engine, sizes[0])
    found: list[Item] = []
    for item in layer.items:
        if item.name in _COUNTED_AHEAD:
            continue
        if item.name == "attention_flash" and isinstance(item, Op) and sizes[2]:
            found += (*_made_again(engine, shape, sizes), _longer(engine, item, sizes))
        elif item.name in ("experts_up", "experts_down") and isinstance(item, Op):
            found.append(touched(engine, shape, item))
        else:
            found.append(item)
    return tuple(found)


def _longer(engine: Engine, op: Op, sizes: tuple[int, int, int]) -> Op:
    """Attention of the new tokens to the cached ones, too."""
    prompts, new, cached = sizes
    own, tensor = heads(engine.model), engine.spec.tensor
    both = own.qk_dim + own.v_dim
    flop = 2.0 * prompts * new * cached * own.query / tensor * both
    read = 2.0 * prompts * cached * max(1, own.key_value / tensor) * both
    return replace(op, forward=op.forward + Work(flop, read, 0, width=op.forward.width))


def _made_again(engine: Engine, shape: Shape, sizes: tuple[int, int, int]) -> tuple[Op, ...]:
    """Whole keys and values of the cached tokens from their latents."""
    own, (prompts, _, cached) = engine.model.attention, sizes
    if not isinstance(own, LatentAttention):
        return ()
    width = own.heads // shape.tensor * (own.qk_nope_head_dim + own.v_head_dim)
    product = Matmul(prompts * cached, own.kv_lora_rank, width, precision=shape.precision)
    return (linear("kv_up_cached", product),)
