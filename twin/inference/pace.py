"""How fast engines work through requests of one kind, when there is always another one waiting.

A group holds `batch` sequences that decode, one step after the other, and stops for the prompts of
those that come (continuous batching). A request keeps its group busy for its prefill and for
1 / batch of each of its steps. A turn may wait for its environment afterwards, with its cache kept:
by Little's law as many sequences wait as turns end in that time, and the sequences that decode and
those that wait have the memory, or the sandboxes, together. It breaks where lengths differ much and
few requests are left: then `twin.kinds.weight_update` plays them one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from twin.errors import Problem, ScenarioError
from twin.inference.engine import Cause, Engine, Pass
from twin.inference.kv_capacity import room
from twin.inference.seconds import decode_pass, prefill_pass

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
    pieces = ceil(new / chunk)
    each = ceil(new / pieces)
    passes = [prefill_pass(engine, 1, each, cached + at * each) for at in range(pieces)]
    return sum(one.seconds for one in passes), passes[pieces // 2]


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
