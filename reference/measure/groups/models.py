"""What moves the weights (`optimizer`), and whole training steps of the reference model (`steps`).

AdamW and the gradient norm on a table, and Newton-Schulz on matrices of a model's shapes, stacked
where there are many of one. FLOP of Newton-Schulz are five iterations of three products; bytes are
those that the twin counts: for AdamW 30 a weight (an fp32 gradient and two fp32 moments, an fp32
master and the bf16 weight), for the norm 4. A step reads states and gradients once, after all its
passes: so neither finds them in a cache, whatever the table's size.

A step is forward, backward and MuonClip on one micro-batch. The model is the device's preset: small
on a GPU, nano and tiny on a CPU. FLOP are the model's (`reference.trainer.trainee`), so that their
rate over the peak is MFU.

The inference engine of this process (`reference.inference`) with a model of the preset: steps in
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
from torch import Tensor, nn

from reference.inference.engine import Engine
from reference.inference.request import EngineRequest, Sampling
from reference.inference.scheduler import StepPlan
from reference.inference.spec import EngineSpec
from reference.measure import clock
from reference.measure.catalog import LEARNED
from reference.measure.clock import Call, Timing
from reference.measure.groups.products import RANK, projections
from reference.measure.points import (
    BF16,
    TYPES,
    BySetting,
    Setting,
    Skip,
    TimedCase,
    bf16,
    of_reach,
    random,
    timed,
)
from reference.model.transformer import Transformer, initialize
from reference.optim.muon import muon_flop, orthogonalize
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from reference.parallel.replicas import Alone
from reference.rl.session import engine_like, receive, sleep, through_host, wake
from reference.text.tokenizer import ByteTokenizer, Vocabulary
from reference.trainer.settings import keep_freed_memory
from reference.trainer.trainee import flop_per_token
from reference.weight_sync.layout import SyncSpec, full_set
from twin.loading import load_part
from twin.spec.model import ModelSpec

ADAMW = 30.0
"""Bytes of an update per weight: gradient read (4), master and both moments read and written (24),
bf16 weight written (2)."""
NORM: Final = 4.0
"""Bytes of the gradient norm per weight: the fp32 gradient."""
TABLES: Final = BySetting((1, 4, 16, 64), (1, 4, 16, 64), (4, 16, 64, 256, 1024))
"""Rows of the tables, in parts of 64 of the embedding's. On a CPU up to a step's weights."""


def optimizer_cases(setting: Setting) -> list[TimedCase | Skip]:
    """AdamW and the gradient norm on tables; Newton-Schulz on every projection, and on the experts
    of a rank."""
    spec = setting.spec
    words = min(spec.vocab, int(setting.most_bytes / ADAMW / spec.hidden))
    rows = [words * part // 64 for part in setting.of(TABLES)]
    found = [_table(op, count, spec.hidden) for op in ("adamw", "gradient_norm") for count in rows]
    found += [_newton_schulz(1, rows, cols) for rows, cols in projections(spec)]
    if spec.moe is not None:
        count = min(spec.moe.experts, RANK)
        found += [
            _newton_schulz(count, spec.moe.width, spec.hidden),
            _newton_schulz(count, spec.hidden, spec.moe.width),
        ]
    return of_reach(found[:10] if setting.quick else found, "optimizer", setting)


def _table(op: str, rows: int, cols: int) -> TimedCase:
    def make(device: torch.device) -> Call:
        table = nn.Parameter(bf16(device, rows, cols))
        optimizer = Alone([("embedding.weight", table)], OptimizerSpec(kind="adamw"))
        table.grad = random(device, torch.float32, rows, cols)
        return optimizer.move if op == "adamw" else optimizer.norm_squares

    size = (ADAMW if op == "adamw" else NORM) * rows * cols
    shape = {"rows": rows, "cols": cols}
    return TimedCase(op, shape, BF16, 0.0, size, 1, timed(make, size, cold=True))


def _newton_schulz(count: int, rows: int, cols: int) -> TimedCase:
    def make(device: torch.device) -> Call:
        stack_MRC = random(device, torch.float32, count, rows, cols)
        return lambda: orthogonalize(stack_MRC)

    flop = muon_flop({(rows, cols): count})
    n, m = sorted((rows, cols))
    size = 5 * 2.0 * count * (3 * n * m + 5 * n * n)
    shape = {"matrices": count, "rows": rows, "cols": cols}
    return TimedCase("newton_schulz", shape, BF16, flop, size, 15, timed(make, size))


def step_cases(setting: Setting) -> list[TimedCase | Skip]:
    """(preset, sequences, tokens): what each device is meant for."""
    return [
        step(name, load_part("models", name).spec, dtype, sequences, tokens)
        for name, sequences, tokens in setting.of(_STEPS)
        for dtype in ((BF16,) if setting.cuda or setting.quick else setting.dtypes)
    ]


_STEPS = BySetting(
    [("kimi-k2-nano", 1, 64)],
    [("kimi-k2-small", 1, 4096), ("kimi-k2-small", 4, 4096)],
    [("kimi-k2-nano", 4, 256), ("kimi-k2-tiny", 1, 1024)],
)


def step(model: str, spec: ModelSpec, dtype: str, sequences: int, tokens: int) -> TimedCase:
    """One step of a model."""

    def run(setting: Setting) -> Timing:
        call = prepare(spec, TYPES[dtype], sequences, tokens, setting.device)
        return clock.measure([call], setting.device, setting.effort, with_host=True)

    counted = Transformer(spec, device="meta")
    flop = sequences * tokens * flop_per_token(counted, tokens)
    shape = {"sequences": sequences, "tokens": tokens}
    return TimedCase(f"step:{model}", shape, dtype, flop, 0.0, 0, run)


def prepare(
    spec: ModelSpec, dtype: torch.dtype, sequences: int, tokens: int, device: torch.device
) -> clock.Call:
    """A call that makes one step on one random micro-batch."""
    model = Transformer(spec, device=device, dtype=dtype)
    if device.type != "meta":
        initialize(model, 0)
    optimizer = MuonClip(model.named_parameters(), OptimizerSpec())
    batch = torch.randint(spec.vocab, (sequences, tokens + 1), device=device)
    inputs_BT, targets_BT = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()

    def call() -> None:
        model.loss(inputs_BT, targets_BT).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return call


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
    """Batches in steps of two, behind a loop's turns, which find memory as tidy as a loop's."""
    if setting.cuda:
        return [Skip("serving", "the inference engine", "it runs on the CPU")]
    batches = (1, 4) if setting.quick else (1, 2, 4, 8, 16, 32, 64)
    steps = [_step(spent, setting.spec, batch) for batch in batches for spent in SPENT]
    return [*_turn(setting.spec), *steps]


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
    keep_freed_memory()  # as every run of the trainer does
    model = Transformer(spec, dtype=TYPES[BF16])
    initialize(model, 0)
    # As a loop of tasks of their own lengths has it: no prefixes have names that sleep must void.
    room = EngineSpec(share_prefixes=False)
    engine = engine_like(model, Vocabulary(ByteTokenizer(), spec.vocab), room)
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
