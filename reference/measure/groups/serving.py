"""The inference engine of this process (`reference.inference`) with a model of the preset: steps in
which all sequences write, in two parts, and what a colocated loop does to an engine between
rollouts and training, in three.

What a step lasts beyond its pass is the host's: scheduling, drawing tokens, text. Both are timed
within the same steps, since their difference is small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, Literal

from torch import Tensor

from reference.data.tokenizer import ByteTokenizer
from reference.inference.engine import Engine
from reference.inference.request import Request
from reference.inference.sampling import Sampling
from reference.inference.scheduler import Plan
from reference.inference.spec import EngineSpec
from reference.inference.vocabulary import Vocabulary
from reference.measure import clock
from reference.measure.case import BF16, TYPES, Case, Setting, Skip
from reference.measure.point import Timing
from reference.model.initialize import initialize
from reference.model.transformer import Transformer
from reference.rl.colocated import engine_like, receive, sleep, through_host, wake
from reference.weight_sync.spec import SyncSpec
from reference.weight_sync.units import full_set
from twin.spec.model import ModelSpec

Part = Literal["sleep", "update", "wake"]
Spent = Literal["host", "pass"]
SPENT: Final[tuple[Spent, ...]] = ("host", "pass")
"""Of a step."""
PARTS: Final[tuple[Part, ...]] = ("sleep", "update", "wake")
"""Of a turn: the engine gives its memory back, takes new weights, takes its memory again."""
CACHED: Final = 32
"""Tokens that each sequence has in the cache when it begins to write."""
WRITES: Final = 64
"""Tokens that it then writes before another takes its place."""
COLD: Final = 3
"""Steps, and turns, before the first that counts."""
FEWEST: Final = 20
"""Of each that count."""


def cases(setting: Setting) -> list[Case | Skip]:
    """Batches in steps of two."""
    if setting.cuda:
        return [Skip("serving", "the inference engine", "it runs on the CPU")]
    batches = (1, 4) if setting.quick else (1, 2, 4, 8, 16, 32, 64)
    steps = [_step(spent, setting.spec, batch) for batch in batches for spent in SPENT]
    return [*steps, *(_turn(part, setting.spec) for part in PARTS)]


def _step(spent: Spent, spec: ModelSpec, batch: int) -> Case:
    def run(setting: Setting) -> Timing:
        made = _steps(spec, batch, setting)
        seconds = [passed if spent == "pass" else whole - passed for whole, passed in made]
        return clock.summary(seconds, 1, seconds)

    # Half-way: each has written half of its tokens.
    shape = {"sequences": batch, "cached": CACHED + WRITES // 2}
    return Case(f"engine_{spent}", shape, BF16, 0.0, 0.0, 0, run)


class _Timed(Engine):
    """An engine that knows how long its last pass took."""

    now: Callable[[], float]
    passed: float = 0.0

    def compute(self, plan: Plan) -> Tensor:
        """As every engine's."""
        began = self.now()
        try:
            return super().compute(plan)
        finally:
            self.passed = self.now() - began


def _steps(spec: ModelSpec, batch: int, setting: Setting) -> Iterator[tuple[float, float]]:
    """Seconds of a step, and of the pass in it, until the case's time is over: all sequences write
    together, and others begin together."""
    engine = _engine(spec, batch)
    engine.now = now = clock.ticking(setting.device)
    start, counted = time.perf_counter(), 0
    while time.perf_counter() - start < 2 * setting.effort.seconds or counted < FEWEST:
        if engine.idle:
            for seed in range(batch):
                engine.add(_request(seed))
            for _ in range(COLD):
                engine.step()
        began = now()
        engine.step()
        counted += 1
        yield now() - began, engine.passed


def _engine(spec: ModelSpec, batch: int) -> _Timed:
    model = Transformer(spec, dtype=TYPES[BF16])
    initialize(model, 0)
    size = EngineSpec().block_tokens
    blocks = batch * (-(-(CACHED + WRITES) // size) + 1)
    words = Vocabulary(ByteTokenizer(), spec.vocab)
    room = EngineSpec(
        blocks=blocks, running=batch, queue=batch, step_tokens=batch * CACHED, share_prefixes=False
    )
    return _Timed(model, words, room)


def _request(seed: int) -> Request:
    prompt = tuple(range(1, CACHED + 1))
    return Request(prompt, WRITES, sampling=Sampling(seed=seed), min_tokens=WRITES)


def _turn(part: Part, spec: ModelSpec) -> Case:
    units = full_set(spec, TYPES[BF16])
    size = float(sum(unit.bytes for unit in units))

    def run(setting: Setting) -> Timing:
        seconds = [turn[PARTS.index(part)] for turn in _turns(spec, setting)]
        return clock.summary(seconds, 1, seconds)

    # As released: a fused matrix is two of them.
    tensors = sum(len(unit.rows) for unit in units)
    return Case(f"engine_{part}", {"tensors": tensors}, BF16, 0.0, size, 0, run)


def _turns(spec: ModelSpec, setting: Setting) -> Iterator[tuple[float, ...]]:
    """Seconds of the parts of each turn, until the case's time is over."""
    model = Transformer(spec, dtype=TYPES[BF16])
    initialize(model, 0)
    engine = engine_like(model, Vocabulary(ByteTokenizer(), spec.vocab), EngineSpec())
    update = through_host(model, SyncSpec())
    now = clock.ticking(setting.device)
    start, version = time.perf_counter(), 0
    while time.perf_counter() - start < setting.effort.seconds or version < COLD + FEWEST:
        version += 1
        marks = [now()]
        for do in (
            lambda: sleep(engine),
            lambda version=version: receive(engine, model, version, update),
            lambda: wake(engine),
        ):
            do()
            marks.append(now())
        if version > COLD:
            yield tuple(after - before for before, after in pairwise(marks))
