"""An engine over concurrent users and context: tokens per second for each user and for each GPU,
up to where memory ends, and what each step's time goes to.

Every point is `pace` of requests whose prompt is new and whose answer ends at the context, with so
many of them under way; steps are priced at the middle of the answer. The first point is one user
in every group: an engine's groups step together, and fewer users leave groups idle, not faster.
What the model of a step leaves out (`twin.inference.seconds`, `twin.inference.seconds`) is left out
here. It breaks for answers that are a large part of their context, whose steps differ much from the
middle one.

How fast engines work through requests of one kind, when there is always another one waiting.

A group holds `batch` sequences that decode, one step after the other, and stops for the prompts of
those that come (continuous batching). A request keeps its group busy for its prefill and for
1 / batch of each of its steps. A turn may wait for its environment afterwards, with its cache kept:
by Little's law as many sequences wait as turns end in that time, and the sequences that decode and
those that wait have the memory, or the sandboxes, together. It breaks where lengths differ much and
few requests are left: then `twin.kinds.weight_update` plays them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Literal

from twin.arch.ops import Item, Op
from twin.errors import Problem, ScenarioError
from twin.hardware.roofline import speed_of_light
from twin.inference.engine import Cause, Engine, Pass
from twin.inference.kv_capacity import KvCapacity, cached_bytes, room, sequence_bytes
from twin.inference.seconds import (
    CACHED,
    INDEXED,
    decode_halves,
    decode_items,
    decode_pass,
    layer_counts,
    prefill_pass,
    price_of,
)
from twin.network.links import capacity, latency, sharers
from twin.spec.model import LatentAttention

CONTEXTS: Final = (4096, 32_768, 131_072)
"""Tokens: what Kimi K2 was trained on first, what it was extended by, and what it serves
(arXiv:2507.20534, section 2.5)."""
WRITTEN: Final = 1024
"""Tokens of an answer where nothing else is said: OURS."""

Part = Literal["weights", "cache", "traffic", "arithmetic", "launches", "tensor", "expert", "host"]
PARTS: Final[dict[Part, str]] = {
    "weights": "bytes of weights",
    "cache": "bytes of the cache",
    "traffic": "bytes of all else",
    "arithmetic": "FLOP of the tensor cores",
    "launches": "launches of kernels",
    "tensor": "collectives of tensor ranks",
    "expert": "expert all-to-all that nothing hides",
    "host": "the host, between steps and for each sequence",
}
"""What takes the time of a step, in words: the causes of a pass, memory's bandwidth split by what
is read. Matrix products that memory binds read their weights above all, so all of their bytes
count as weights."""
_ALIKE: Final[tuple[Literal["arithmetic", "launches", "tensor", "expert", "host"], ...]] = (
    "arithmetic",
    "launches",
    "tensor",
    "expert",
    "host",
)
"""Parts that are causes of a pass as they are."""


@dataclass(frozen=True, slots=True)
class Point:
    """So many `sequences` in each group at a time, `users` in the whole engine. `parts` are the
    seconds of a step and sum to it; `light` are those of one with every kernel at the full rate of
    tensor cores and memory, no launches and no communication; `in_line` those without halves that
    take turns. `group` are the GPUs of a group."""

    sequences: int
    users: int
    group: int
    written: int
    pace: Pace
    parts: Mapping[Part, float]
    light: float
    in_line: float

    @property
    def step(self) -> float:
        """Seconds from one token of a user to the next."""
        return self.pace.step.seconds

    @property
    def per_user(self) -> float:
        """Tokens per second that a user gets while the engine decodes."""
        return 1.0 / self.step

    @property
    def per_gpu(self) -> float:
        """Tokens per second that a GPU writes while the engine decodes."""
        return self.sequences / self.step / self.group

    @property
    def with_prompts(self) -> float:
        """Tokens per second that a GPU writes where the engine also prefills every prompt."""
        return self.written / self.pace.seconds / self.group

    @property
    def bound(self) -> Part:
        """What takes most of a step."""
        return max(self.parts, key=lambda part: self.parts[part])

    def to_json(self) -> dict[str, Any]:
        """All of it in plain data, with what follows from it."""
        return {
            "sequences_per_group": self.sequences,
            "users": self.users,
            "step_seconds": self.step,
            "tokens_per_second_per_user": self.per_user,
            "tokens_per_second_per_gpu": self.per_gpu,
            "tokens_per_second_per_gpu_with_prompts": self.with_prompts,
            "bound": self.bound,
            "parts": dict(self.parts),
            "roofline_seconds": self.light,
            "in_line_seconds": self.in_line,
        }


@dataclass(frozen=True, slots=True)
class AtContext:
    """Requests that end at one context. `most` sequences of a group are as many as `limit` allows;
    `prefill` are seconds of a group for one prompt, `moved` those in which its cache comes from an
    engine that prefills, over NICs alone. Without room for one there are no points."""

    context: int
    most: int
    limit: Limit
    prefill: float
    moved: float
    points: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it in plain data."""
        return {
            "context": self.context,
            "most_sequences_per_group": self.most,
            "limit": self.limit,
            "prefill_seconds": self.prefill,
            "cache_moves_seconds": self.moved,
            "points": [one.to_json() for one in self.points],
        }


@dataclass(frozen=True, slots=True)
class Curve:
    """One engine of so many GPUs, in groups, at all contexts, shortest first."""

    gpus: int
    groups: int
    written: int
    room: KvCapacity
    contexts: tuple[AtContext, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it in plain data."""
        return {
            "gpus": self.gpus,
            "groups": self.groups,
            "written": self.written,
            "memory": self.room.to_json(),
            "contexts": [one.to_json() for one in self.contexts],
        }


def curve(engine: Engine, contexts: Sequence[int] = CONTEXTS, written: int = WRITTEN) -> Curve:
    """The engine at these contexts, of which the last `written` tokens are the answer: 1, 2, 4, ...
    users of each group, and as many as there may be."""
    assert all(context > written for context in contexts), "an answer is shorter than its context"
    found = tuple(_at(engine, context, written) for context in sorted(contexts))
    return Curve(engine.spec.gpus, engine.groups, written, room(engine), found)


def most(engine: Engine, context: int) -> tuple[int, Limit]:
    """Sequences of so many tokens that a group may have at a time, and why no more."""
    slots, batch = room(engine).slots(context), engine.spec.batch
    return (batch, "batch") if batch is not None and batch <= slots else (slots, "memory")


def sizes(top: int) -> Iterator[int]:
    """1, 2, 4, ... and the last one, `top`; nothing where that is 0."""
    size = 1
    while size < top:
        yield size
        size *= 2
    if top:
        yield top


def _at(engine: Engine, context: int, written: int) -> AtContext:
    top, limit = most(engine, context)
    request = Request(float(context - written), 0.0, float(written))
    points = tuple(point(engine, request, size) for size in sizes(top))
    prefill = points[0].pace.prefill_seconds if points else 0.0
    moved = cache_moves(engine, context - written)
    return AtContext(context, top, limit, prefill, moved, points)


def cache_moves(engine: Engine, tokens: int, to: Engine | None = None) -> float:
    """Seconds in which the cache of a prompt leaves a group of tensor ranks for one on other nodes,
    of an engine of the same kind or another: over as many NICs as the smaller group has, each of
    which sends its part, and through their part of a leaf's uplinks."""
    held, cluster = cached_bytes(engine) * tokens + sequence_bytes(engine), engine.cluster
    if not isinstance(engine.model.attention, LatentAttention):
        held *= engine.spec.tensor
    rate, uplinks = capacity(cluster, "nic"), capacity(cluster, "leaf")
    if uplinks is not None:
        rate = min(rate, uplinks / sharers(cluster, "leaf"))
    ranks = min(engine.spec.tensor, (to or engine).spec.tensor)
    return latency(cluster, "nic") + held / ranks / rate


def point(engine: Engine, request: Request, sequences: int) -> Point:
    """So many such requests at a time in each group, which has room for them."""
    found = pace(engine, request, sequences)
    middle = request.cached + request.new + request.written / 2
    return Point(
        sequences,
        sequences * engine.groups,
        engine.spec.tensor,
        round(request.written),
        found,
        _parts(engine, found, sequences, middle),
        _light(engine, sequences, middle),
        decode_pass(_without_turns(engine), sequences, middle).seconds,
    )


def _without_turns(engine: Engine) -> Engine:
    changed: dict[str, Any] = {"two_batches": False}
    spec = engine.spec.model_copy(update=changed)
    return Engine(spec, engine.model, engine.cluster, engine.calibration)


def _parts(engine: Engine, found: Pace, sequences: int, middle: float) -> dict[Part, float]:
    """The causes of a step, those of memory by what is read."""
    causes = found.step.causes
    halves, items = decode_halves(engine, sequences, middle)
    given = engine.spec.speculation.emitted if engine.spec.speculation else 1.0
    read: dict[Part, float] = {"weights": 0.0, "cache": 0.0, "traffic": 0.0}
    for times, op in _ops(engine, items):
        cost = price_of(engine, op)
        if cost.arithmetic < cost.memory:
            read[_reads(op)] += halves * times * cost.busy / given
    for part in _ALIKE:
        read[part] = causes.get(part, 0.0)
    return read


def _reads(op: Op) -> Literal["weights", "cache", "traffic"]:
    if op.name in (CACHED, INDEXED):
        return "cache"
    return "weights" if op.kind in ("gemm", "grouped_gemm") else "traffic"


def _light(engine: Engine, sequences: int, middle: float) -> float:
    """The roofline of a step whose sequences are all together: kernels one after the other."""
    gpu = engine.cluster.node.gpu
    items = decode_items(engine, sequences, middle)
    given = engine.spec.speculation.emitted if engine.spec.speculation else 1.0
    return sum(times * speed_of_light(op.forward, gpu) for times, op in _ops(engine, items)) / given


def _ops(engine: Engine, items: Mapping[str, tuple[Item, ...]]) -> Iterator[tuple[int, Op]]:
    """Kernels that run, each with the number of its layers."""
    for kind, count in layer_counts(engine, items).items():
        for item in items[kind]:
            if isinstance(item, Op) and item.forward.kernels:
                yield count, item


Limit = Literal["memory", "batch", "sandboxes"]
"""Why no more sequences decode at a time: room for their cache, `engine.batch`, or sandboxes."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: tokens of the prompt that are new and that are cached, tokens that are written,
    and seconds for which the sequence waits for an environment afterwards. `held` is what its cache
    grows to in the end where more is to come (0: to the end of this request)."""

    new: float
    cached: float
    written: float
    waits: float = 0.0
    held: float = 0.0

    @property
    def longest(self) -> float:
        """Tokens for which the sequence needs room."""
        return max(self.held, self.cached + self.new + self.written)


@dataclass(frozen=True, slots=True)
class Pace:
    """Requests of one kind on one group. Seconds are those in which the group works on a request:
    its prefill, and its part of the steps; `idle` is the group's share of time in which every
    sequence waits for its environment."""

    prefill_seconds: float
    decode_seconds: float
    batch: float
    waiting: float
    idle: float
    limit: Limit
    prefill: Pass
    step: Pass

    @property
    def seconds(self) -> float:
        """Seconds of the group per request."""
        return (self.prefill_seconds + self.decode_seconds) / (1.0 - self.idle)

    @property
    def bound(self) -> tuple[str, Cause | None]:
        """What takes most of the time, and its cause; `waiting` has none."""
        parts = (self.prefill_seconds, self.decode_seconds)
        if self.idle * self.seconds > max(parts):
            return "waiting", None
        if parts[0] >= parts[1]:
            return "prefill", self.prefill.bound
        return "decode", self.step.bound


def pace(engine: Engine, request: Request, sequences: float | None = None) -> Pace:
    """How a group works through such requests, of which it may have so many `sequences` under way
    (None: as many as it has room for).

    Raises `ScenarioError` where there is no room for one.
    """
    most, limit = _most(engine, request, sequences)
    first, prefill = _prefill(engine, request)
    middle = request.cached + request.new + request.written / 2
    batch = _batch(engine, request, most, first, middle)
    if engine.spec.batch is not None and batch >= engine.spec.batch:
        limit = "batch"
    step = decode_pass(engine, max(1, round(batch)), middle)
    decode = request.written * step.seconds / max(1.0, batch)
    waiting = request.waits / (first + decode) if first + decode else 0.0
    idle = max(0.0, 1.0 - most / (1.0 + waiting)) if most < 1.0 + waiting and batch <= 1 else 0.0
    return Pace(first, decode, batch, waiting * (1 - idle), idle, limit, prefill, step)


def _most(engine: Engine, request: Request, sequences: float | None) -> tuple[float, Limit]:
    """Sequences that a group may have under way, and why no more."""
    slots = room(engine).slots(request.longest)
    if slots < 1:
        message = (
            f"no sequence of {request.longest:,.0f} tokens has room beside the weights on "
            f"{engine.spec.gpus} {engine.cluster.node.gpu.name}"
        )
        fix = "give the engine more GPUs, FP8 weights or an FP8 cache, or a smaller `chunk`"
        raise ScenarioError([Problem("TW181", "data.engine", message, fix)])
    if sequences is not None and sequences < slots:
        return sequences, "sandboxes"
    return float(slots), "memory"


def _prefill(engine: Engine, request: Request) -> tuple[float, Pass]:
    """Seconds of a group for the prompt of one request, and a pass of it: of many short prompts
    together, or of one long prompt in pieces."""
    new, cached, chunk = max(1, round(request.new)), round(request.cached), engine.spec.chunk
    if new <= chunk:
        prompts = chunk // new
        one = prefill_pass(engine, prompts, new, cached)
        return one.seconds / prompts, one
    passes = _pieces(engine, new, cached)
    return sum(one.seconds for one in passes), passes[len(passes) // 2]


def _pieces(engine: Engine, new: int, cached: int) -> list[Pass]:
    """The passes of one long prompt."""
    pieces = ceil(new / engine.spec.chunk)
    each = ceil(new / pieces)
    return [prefill_pass(engine, 1, each, cached + at * each) for at in range(pieces)]


def prompt_seconds(engine: Engine, prompts: int, new: int, cached: int = 0) -> float:
    """Seconds in which each group prefills so many prompts at once, or long ones in pieces."""
    if prompts * new <= engine.spec.chunk:
        return prefill_pass(engine, prompts, max(1, new), cached).seconds
    return prompts * sum(one.seconds for one in _pieces(engine, new, cached))


def _batch(engine: Engine, request: Request, most: float, first: float, middle: float) -> float:
    """The largest batch whose waiting sequences, and itself, are no more than `most`."""
    top = most if engine.spec.batch is None else min(most, engine.spec.batch)
    if not request.waits:
        return max(1.0, top)

    def under_way(batch: int) -> float:
        step = decode_pass(engine, batch, middle).seconds
        return batch + request.waits / (first + request.written * step / batch)

    low, high = 1, max(1, int(top))
    while low < high:
        middle_batch = (low + high + 1) // 2
        if under_way(middle_batch) <= most:
            low = middle_batch
        else:
            high = middle_batch - 1
    return float(low)
