"""The inference engine of this process (`reference.inference`) with a model of the preset: steps in
which all sequences write, the model's passes in them alone, and what a colocated loop does to an
engine between rollouts and training.

What a step lasts beyond its pass is the host's: scheduling, drawing tokens, text. Seconds are of
one step or turn; those of a turn are of each of its three parts, in turns that follow one another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, Literal

from reference.data.tokenizer import ByteTokenizer
from reference.inference.engine import Engine
from reference.inference.forward import Piece, forward
from reference.inference.request import Request
from reference.inference.sampling import Sampling
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
PARTS: Final[tuple[Part, ...]] = ("sleep", "update", "wake")
"""Of a turn: the engine gives its memory back, takes new weights, takes its memory again."""
CACHED: Final = 32
"""Tokens that each sequence has in the cache when it begins to write."""
WRITES: Final = 64
"""Tokens that it then writes before another takes its place."""
TURNS: Final = 3
"""Turns before the first that counts."""


def cases(setting: Setting) -> list[Case | Skip]:
    """Batches in steps of four."""
    if setting.cuda:
        return [Skip("serving", "the inference engine", "it runs on the CPU")]
    batches = (1, 4) if setting.quick else (1, 4, 16, 64)
    steps = [_step(name, setting.spec, batch) for batch in batches for name in _CALLS]
    return [*steps, *(_turn(part, setting.spec) for part in PARTS)]


def _step(name: str, spec: ModelSpec, batch: int) -> Case:
    def run(setting: Setting) -> Timing:
        call = _CALLS[name](_engine(spec, batch), batch)
        return clock.measure([call], setting.device, setting.effort)

    return Case(name, {"sequences": batch, "cached": CACHED}, BF16, 0.0, 0.0, 0, run)


def _engine(spec: ModelSpec, batch: int) -> Engine:
    model = Transformer(spec, dtype=TYPES[BF16])
    initialize(model, 0)
    size = EngineSpec().block_tokens
    blocks = batch * (-(-(CACHED + WRITES) // size) + 1)
    words = Vocabulary(ByteTokenizer(), spec.vocab)
    room = EngineSpec(
        blocks=blocks, running=batch, queue=batch, step_tokens=batch * CACHED, share_prefixes=False
    )
    return engine_like(model, words, room)


def _steps(engine: Engine, batch: int) -> clock.Call:
    """Steps without end: all write together, and begin anew together."""

    def call() -> None:
        if engine.idle:
            for seed in range(batch):
                engine.add(_request(seed))
            engine.step()
        engine.step()

    return call


def _request(seed: int) -> Request:
    prompt = tuple(range(1, CACHED + 1))
    return Request(prompt, WRITES, sampling=Sampling(seed=seed), min_tokens=WRITES)


def _passes(engine: Engine, batch: int) -> clock.Call:
    """The model's pass for the same sequences, half-way."""
    count = engine.spec.blocks // batch
    middle = CACHED + WRITES // 2
    pieces = [
        Piece([1], middle, list(range(row * count, (row + 1) * count))) for row in range(batch)
    ]
    return lambda: forward(engine.model, pieces, engine.cache)


_CALLS: Final[dict[str, Callable[[Engine, int], clock.Call]]] = {
    "engine_step": _steps,
    "engine_pass": _passes,
}


def _turn(part: Part, spec: ModelSpec) -> Case:
    units = full_set(spec, TYPES[BF16])
    size = float(sum(unit.bytes for unit in units))

    def run(setting: Setting) -> Timing:
        seconds = [turn[PARTS.index(part)] for turn in _turns(spec, setting)]
        return clock.summary(seconds, 1, seconds)

    return Case(f"engine_{part}", {"tensors": len(units)}, BF16, 0.0, size, 0, run)


def _turns(spec: ModelSpec, setting: Setting) -> Iterator[tuple[float, ...]]:
    """Seconds of the parts of each turn, until the case's time is over."""
    model = Transformer(spec, dtype=TYPES[BF16])
    initialize(model, 0)
    engine = engine_like(model, Vocabulary(ByteTokenizer(), spec.vocab), EngineSpec())
    update = through_host(model, SyncSpec())
    now = clock.ticking(setting.device)
    start, version = time.perf_counter(), 0
    while time.perf_counter() - start < setting.effort.seconds or version < TURNS + 5:
        version += 1
        marks = [now()]
        for do in (
            lambda: sleep(engine),
            lambda version=version: receive(engine, model, version, update),
            lambda: wake(engine),
        ):
            do()
            marks.append(now())
        if version > TURNS:
            yield tuple(after - before for before, after in pairwise(marks))
