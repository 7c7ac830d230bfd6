"""The inference engine of this process (`reference.inference`) with a model of the preset: steps in
which all sequences write, in two parts, and what a colocated loop does to an engine between
rollouts and training, in three.

What a step lasts beyond its pass is the host's: scheduling, drawing tokens, text. Both are timed
within the same steps, since their difference is small. A turn's parts are timed where a loop has
them: after sequences that the engine served, whose books it must void, and around a trainer's step,
which leaves other memory behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Literal

import torch
from torch import Tensor

from reference.inference.engine import Engine
from reference.inference.request import EngineRequest
from reference.inference.sampling import Sampling
from reference.inference.scheduler import StepPlan
from reference.inference.spec import EngineSpec
from reference.measure import clock
from reference.measure.cases import BF16, TYPES, Setting, Skip, TimedCase
from reference.measure.catalog import LEARNED
from reference.measure.points import Timing
from reference.model.transformer import Transformer, initialize
from reference.rl.session import engine_like, receive, sleep, through_host, wake
from reference.text.tokenizer import ByteTokenizer
from reference.text.vocabulary import Vocabulary
from reference.weight_sync.layout import SyncSpec
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
SERVED: Final = (16, 8)
"""Sequences before a turn, and tokens that each writes."""


def serving_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Batches in steps of two."""
    if setting.cuda:
        return [Skip("serving", "the inference engine", "it runs on the CPU")]
    batches = (1, 4) if setting.quick else (1, 2, 4, 8, 16, 32, 64)
    steps = [_step(spent, setting.spec, batch) for batch in batches for spent in SPENT]
    return [*steps, *_turn(setting.spec)]


def _step(spent: Spent, spec: ModelSpec, batch: int) -> TimedCase:
    def run(setting: Setting) -> Timing:
        made = _steps(spec, batch, setting)
        seconds = [passed if spent == "pass" else whole - passed for whole, passed in made]
        return clock.summary(seconds, 1, seconds)

    # Half-way: each has written half of its tokens.
    shape = {"sequences": batch, "cached": CACHED + WRITES // 2}
    return TimedCase(f"engine_{spent}", shape, BF16, 0.0, 0.0, 0, run)


class _Timed(Engine):
    """An engine that knows how long its last pass took."""

    now: Callable[[], float]
    passed: float = 0.0

    def compute(self, plan: StepPlan) -> Tensor:
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


def _request(seed: int, tokens: int = WRITES) -> EngineRequest:
    prompt = tuple(range(1, CACHED + 1))
    return EngineRequest(prompt, tokens, sampling=Sampling(seed=seed), min_tokens=tokens)


def _turn(spec: ModelSpec) -> list[TimedCase]:
    """A case for each part of the same turns."""
    units = full_set(spec, TYPES[BF16])
    size = float(sum(unit.bytes for unit in units))
    made: list[tuple[float, ...]] = []

    def timed(part: Part, setting: Setting) -> Timing:
        if not made:
            made.extend(_turns(spec, setting))
        seconds = [turn[PARTS.index(part)] for turn in made]
        return clock.summary(seconds, 1, seconds)

    # As released: a fused matrix is two of them.
    shape = {"tensors": sum(len(unit.rows) for unit in units)}
    return [
        TimedCase(f"engine_{part}", shape, BF16, 0.0, size, 0, partial(timed, part))
        for part in PARTS
    ]


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
        _serve(engine, quick=setting.quick)
        begun = now()
        sleep(engine)
        asleep = now() - begun
        _learn(model, quick=setting.quick)
        begun = now()
        receive(engine, model, version, update)
        updated = now()
        wake(engine)
        awake = now()
        if version > COLD:
            yield asleep, updated - begun, awake - updated


def _serve(engine: Engine, *, quick: bool) -> None:
    """What an engine has done before it goes to sleep."""
    sequences, tokens = (1, 1) if quick else SERVED
    for seed in range(sequences):
        engine.add(_request(seed, tokens))
    while not engine.idle:
        engine.step()


def _learn(model: Transformer, *, quick: bool) -> None:
    """What the trainer does meanwhile: gradients of a micro-batch, let go again."""
    rows, length = (1, 16) if quick else LEARNED
    tokens_BT = torch.arange(rows * length).reshape(rows, length) % model.spec.vocab
    model.loss(tokens_BT, tokens_BT).backward()
    model.zero_grad(set_to_none=True)
