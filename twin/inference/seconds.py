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
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twin.arch.ops import Exchange, Item, LayerKind, Op
from twin.arch.remembered import remembered
from twin.arch.stack import kinds
from twin.collectives.deepep import deepep
from twin.collectives.traffic import alone, chosen, traffic
from twin.hardware.roofline import Price, price, slowdown
from twin.inference.decode import decode_items
from twin.inference.engine import Cause, Engine, Pass
from twin.inference.prefill import prefill_items, spread_of

CACHED = "attention_cached"
"""The name of the kernel that reads the cache."""


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
    """One step of `batch` sequences in each group, with `cached` tokens each on average."""
    halves, items = decode_halves(engine, batch, cached)
    made = (_in_turns if halves == 2 else _in_line)(engine, items, "decode")
    return _with_host(engine, made, batch)


def decode_halves(
    engine: Engine, batch: int, cached: float
) -> tuple[int, dict[LayerKind, tuple[Item, ...]]]:
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
        whole = _in_line(engine, prefill_items(engine, prompts, new, cached), "prefill")
        return _with_host(engine, whole, prompts)
    if prompts > 1:
        halves = prefill_items(engine, -(-prompts // 2), new, cached)
    else:
        # The second half also sees the first, so the mean half sees a quarter of them more.
        halves = prefill_items(engine, 1, -(-new // 2), cached + new // 4)
    return _with_host(engine, _in_turns(engine, halves, "prefill"), prompts)


def _exchanges(engine: Engine) -> bool:
    return engine.model.moe is not None and engine.spec.gpus > 1


def _in_line(engine: Engine, items: Mapping[LayerKind, tuple[Item, ...]], of: str) -> Pass:
    total: defaultdict[Cause, float] = defaultdict(float)
    for kind, count in Counter(kinds(engine.model)).items():
        layer = _layer(engine, items[kind], of)
        for cause, seconds in layer.causes.items():
            total[cause] += count * seconds
        total["expert"] += count * layer.expert
    return Pass(total)


def _in_turns(engine: Engine, items: Mapping[LayerKind, tuple[Item, ...]], of: str) -> Pass:
    total: defaultdict[Cause, float] = defaultdict(float)
    hidden = 0.0
    for kind, count in Counter(kinds(engine.model)).items():
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


def _with_host(engine: Engine, one: Pass, sequences: int) -> Pass:
    """What the host takes beside, of which no kernel hides any."""
    host = engine.spec.step_overhead + engine.spec.sequence_overhead * sequences
    causes: dict[Cause, float] = {**one.causes, "host": host}
    return replace(one, causes=causes)


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
            seconds = _exchanged(engine, item, of)
            if item.group == "expert":
                expert += seconds
            else:
                causes["tensor"] += seconds
    return _Half(causes, bound, expert)


def price_of(engine: Engine, op: Op) -> Price:
    """What the forward kernels of an op cost on the engine's GPU."""
    own = engine.calibration
    if op.name == CACHED:
        flat: dict[str, Any] = {"attention_forward_ramp": 0.0, "attention_forward_width": 0.0}
        own = own.model_copy(update=flat)
    return price(op.kind, op.forward, engine.cluster.node.gpu, own)


def _exchanged(engine: Engine, item: Exchange, of: str) -> float:
    """Seconds of a collective on idle links."""
    cluster, size, kind = engine.cluster, item.payload(), item.forward
    assert kind is not None, "it has a forward"
    if item.group != "expert":
        return alone(chosen(cluster, "auto", kind, size, engine.sharers), cluster, engine.sharers)
    found = spread_of(engine) if of == "prefill" else None
    where = engine.everyone
    flow = deepep(size, found, where) if found else traffic("all_to_all", size, where)
    return alone(flow, cluster, where)
