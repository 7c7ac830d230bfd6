"""What an engine has in device memory: weights, the cache, and room for passes; so how many
sequences it can hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import floor
from typing import Any, Final

from twin.arch.inference import index_bytes, mixers
from twin.arch.kernels import ELEMENT, FP8_WEIGHT
from twin.arch.ops import Layer, Op
from twin.arch.remembered import remembered
from twin.arch.stack import attends, attention, block, heads, kinds, layers, mixer_of
from twin.inference.engine import INT4, Engine
from twin.inference.seconds import draft_kind, step_shape
from twin.spec.model import GroupedAttention, LatentAttention

MOST: Final = 10**9
"""Tokens of a cache that does not grow with them."""


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """Bytes of one GPU of an engine: `capacity` less `reserve` is for weights, the tensors of a
    pass, and the cache, of which each token takes `per_token`, and each sequence `per_sequence`,
    whatever its length: states, and windows as if all were full. `reserve` is what the device
    keeps, or all beyond the engine's own share."""

    capacity: float
    reserve: float
    weights: float
    passes: float
    per_token: float
    per_sequence: float = 0.0

    @property
    def cache(self) -> float:
        """What is left for the cache; not positive where nothing is."""
        return self.capacity - self.reserve - self.weights - self.passes

    @property
    def tokens(self) -> int:
        """Tokens that one group's cache holds, of one sequence."""
        free = self.cache - self.per_sequence
        return max(0, floor(free / self.per_token)) if self.per_token else MOST * (free > 0)

    def slots(self, context: float) -> int:
        """Sequences of so many tokens that one group's cache holds."""
        if self.per_sequence:
            return max(0, floor(self.cache / (self.per_sequence + self.per_token * context)))
        return floor(self.tokens / context) if context > 0 else self.tokens

    def to_json(self) -> dict[str, Any]:
        """All of it in plain data."""
        return {
            "capacity": self.capacity,
            "reserve": self.reserve,
            "weights": self.weights,
            "passes": self.passes,
            "cache": max(0.0, self.cache),
            "bytes_per_token": self.per_token,
            **({"bytes_per_sequence": self.per_sequence} if self.per_sequence else {}),
            "tokens": self.tokens,
        }


@remembered(256)
def room(engine: Engine) -> KvCapacity:
    """The memory of one GPU of an engine. Of the tensors of a pass the largest two are counted,
    twice what one layer must have at least."""
    gpu, order = engine.cluster.node.gpu, kinds(engine.model)
    own = dict(zip(order, layers(engine.model, step_shape(engine, 1)), strict=True))
    large = dict(
        zip(order, layers(engine.model, step_shape(engine, engine.spec.chunk)), strict=True)
    )
    between = (layer for kind, layer in large.items() if kind not in ("embedding", "head"))
    ops = (item for layer in between for item in layer.items if isinstance(item, Op))
    return KvCapacity(
        capacity=gpu.memory,
        reserve=max(
            sum(entry.bytes for entry in gpu.reserve), (1.0 - engine.spec.memory) * gpu.memory
        ),
        weights=sum(n * _weights(engine, own[kind]) for kind, n in Counter(order).items())
        + (_drafting(engine, own[draft_kind(engine)]) if engine.drafts else 0.0),
        passes=2.0 * max(op.output for op in ops),
        per_token=cached_bytes(engine),
        per_sequence=sequence_bytes(engine),
    )


def cached_bytes(engine: Engine) -> float:
    """Bytes of the cache per token on one GPU, in all layers: tensor ranks share key and value
    heads, of which each has at least one; a latent is whole on each."""
    model, own = engine.model, engine.model.attention
    far: defaultdict[int, float] = defaultdict(float)
    for mixer, times in mixers(model).items():
        if attends(mixer):
            far[_values(engine, mixer)] += times * (1.0 - heads(model, mixer).windowed)
    if engine.drafts and attends(drafts := mixer_of(draft_kind(engine))):
        far[_values(engine, drafts)] += 1.0
    index = index_bytes(own) * sum(far.values()) if isinstance(own, LatentAttention) else 0.0
    return sum(engine.cache_element * values * times for values, times in far.items()) + index


def _drafting(engine: Engine, layer: Layer) -> float:
    """Bytes of the layer that drafts: it shares embedding and head with the model."""
    return _weights(engine, layer) + 2.0 * ELEMENT * engine.model.hidden**2


def _values(engine: Engine, mixer: str) -> int:
    """Numbers that a token leaves in one layer of attention, on one GPU."""
    own = attention(engine.model, mixer)
    match own:
        case LatentAttention():
            return own.kv_lora_rank + own.qk_rope_head_dim
        case GroupedAttention():
            return max(1, own.kv_heads // engine.spec.tensor) * 2 * own.head_dim


def sequence_bytes(engine: Engine) -> float:
    """Bytes of the cache per sequence on one GPU, in all layers, whatever its length: windows, and
    states of linear attention and state-space blocks, whose heads tensor ranks share."""
    model, own = engine.model, block(engine.model)
    found = 0.0
    for mixer, times in mixers(model).items():
        if attends(mixer):
            near, values = heads(model, mixer), _values(engine, mixer)
            found += engine.cache_element * values * times * near.windowed * near.window
        elif own is not None:
            found += times * own.state().bytes / engine.spec.tensor
    return found


def _weights(engine: Engine, layer: Layer) -> float:
    """Bytes of a layer's weights: matrices between embedding and head in the products' numbers."""
    own = layer.used
    if layer.kind in ("embedding", "head"):
        return float(ELEMENT * own.total)
    width = FP8_WEIGHT if engine.spec.precision == "fp8" else ELEMENT
    experts = width if engine.spec.expert_weights is None else INT4
    dense = own.replicated_matrices + own.tensor_matrices
    rest = own.total - dense - own.expert_matrices
    return width * dense + experts * own.expert_matrices + ELEMENT * rest
