"""What an engine has in device memory: weights, the cache, and room for passes; so how many
sequences it can hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import floor
from typing import Any

from twin.arch.kernels import ELEMENT, FP8_WEIGHT
from twin.arch.ops import Layer, Op
from twin.arch.remembered import remembered
from twin.arch.stack import kinds, layers
from twin.inference.engine import Engine
from twin.inference.seconds import step_shape
from twin.spec.model import GroupedAttention, LatentAttention


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """Bytes of one GPU of an engine: `capacity` less `reserve` is for weights, the tensors of a
    pass, and the cache, of which each token takes `per_token`. `reserve` is what the device keeps,
    or all beyond the engine's own share."""

    capacity: float
    reserve: float
    weights: float
    passes: float
    per_token: float

    @property
    def cache(self) -> float:
        """What is left for the cache; not positive where nothing is."""
        return self.capacity - self.reserve - self.weights - self.passes

    @property
    def tokens(self) -> int:
        """Tokens that one group's cache holds."""
        return max(0, floor(self.cache / self.per_token))

    def slots(self, context: float) -> int:
        """Sequences of so many tokens that one group's cache holds."""
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
        weights=sum(n * _weights(engine, own[kind]) for kind, n in Counter(order).items()),
        passes=2.0 * max(op.output for op in ops),
        per_token=cached_bytes(engine),
    )


def cached_bytes(engine: Engine) -> float:
    """Bytes of the cache per token on one GPU, in all layers: tensor ranks share key and value
    heads, of which each has at least one; a latent is whole on each."""
    own = engine.model.attention
    match own:
        case LatentAttention():
            values = own.kv_lora_rank + own.qk_rope_head_dim
        case GroupedAttention():
            values = max(1, own.kv_heads // engine.spec.tensor) * 2 * own.head_dim
    return engine.cache_element * values * engine.model.layers


def _weights(engine: Engine, layer: Layer) -> float:
    """Bytes of a layer's weights: matrices between embedding and head in the products' numbers."""
    own = layer.used
    if engine.spec.precision != "fp8" or layer.kind in ("embedding", "head"):
        return float(ELEMENT * own.total)
    products = own.replicated_matrices + own.tensor_matrices + own.expert_matrices
    return FP8_WEIGHT * products + ELEMENT * (own.total - products)
