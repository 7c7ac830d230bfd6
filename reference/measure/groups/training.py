"""What moves the weights (`optimizer`), and whole training steps of the reference model (`steps`).

AdamW on a table, and Newton-Schulz on matrices of a model's shapes, stacked where there are many of
one. FLOP of Newton-Schulz are five iterations of three products; bytes are those that the twin
counts: for AdamW 30 a weight (an fp32 gradient and two fp32 moments, an fp32 master and the bf16
weight).

A step is forward, backward and MuonClip on one micro-batch. The model is the device's preset: small
on a GPU, nano and tiny on a CPU. FLOP are the model's (`reference.trainer.flop`), so that their
rate over the peak is MFU.
"""

from __future__ import annotations

import torch
from torch import nn

from reference.measure import clock
from reference.measure.cases import (
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
from reference.measure.clock import Call
from reference.measure.groups.products import RANK, projections
from reference.measure.points import Timing
from reference.model.transformer import Transformer, initialize
from reference.optim.muon import muon_flop, orthogonalize
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from reference.trainer.flop import flop_per_token
from twin.loading import load_part
from twin.spec.model import ModelSpec

ADAMW = 30.0
"""Bytes of an update per weight: gradient read (4), master and both moments read and written (24),
bf16 weight written (2)."""


def optimizer_cases(setting: Setting) -> list[TimedCase | Skip]:
    """AdamW on the embedding; Newton-Schulz on every projection, and on the experts of a rank."""
    spec = setting.spec
    words = min(spec.vocab, int(setting.most_bytes / ADAMW / spec.hidden))
    found = [_adamw(words // part, spec.hidden) for part in (64, 16, 4, 1)]
    found += [_newton_schulz(1, rows, cols) for rows, cols in projections(spec)]
    if spec.moe is not None:
        count = min(spec.moe.experts, RANK)
        found += [
            _newton_schulz(count, spec.moe.width, spec.hidden),
            _newton_schulz(count, spec.hidden, spec.moe.width),
        ]
    return of_reach(found[:6] if setting.quick else found, "optimizer", setting)


def _adamw(rows: int, cols: int) -> TimedCase:
    def make(device: torch.device) -> Call:
        table = nn.Parameter(bf16(device, rows, cols))
        optimizer = MuonClip([("embedding.weight", table)], OptimizerSpec(kind="adamw"))
        table.grad = random(device, torch.float32, rows, cols)
        return optimizer.step

    size, shape = ADAMW * rows * cols, {"rows": rows, "cols": cols}
    return TimedCase("adamw", shape, BF16, 0.0, size, 1, timed(make, size))


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
