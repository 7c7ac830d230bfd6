"""What moves the weights: AdamW on a table, and Newton-Schulz on matrices of a model's shapes,
stacked where there are many of one.

FLOP of Newton-Schulz are five iterations of three products; bytes are those that the twin counts:
for AdamW 30 a weight (an fp32 gradient and two fp32 moments, an fp32 master and the bf16 weight).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from reference.measure.case import BF16, TYPES, Case, Setting, Skip, of_reach, random, timed
from reference.measure.clock import Call
from reference.measure.groups.gemm import projections
from reference.measure.groups.grouped import RANK
from reference.optim.muon import muon_flop, orthogonalize
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec

ADAMW = 30.0
"""Bytes of an update per weight: gradient read (4), master and both moments read and written (24),
bf16 weight written (2)."""


def cases(setting: Setting) -> list[Case | Skip]:
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


def _adamw(rows: int, cols: int) -> Case:
    size = ADAMW * rows * cols
    shape = {"rows": rows, "cols": cols}
    make = _table(rows, cols)
    return Case("adamw", shape, BF16, 0.0, size, 1, timed(make, size))


def _table(rows: int, cols: int) -> Callable[[torch.device], Call]:
    def make(device: torch.device) -> Call:
        table = nn.Parameter(random(device, TYPES[BF16], rows, cols))
        optimizer = MuonClip([("embedding.weight", table)], OptimizerSpec(kind="adamw"))
        table.grad = random(device, torch.float32, rows, cols)
        return optimizer.step

    return make


def _newton_schulz(count: int, rows: int, cols: int) -> Case:
    def make(device: torch.device) -> Call:
        stack_MRC = random(device, torch.float32, count, rows, cols)
        return lambda: orthogonalize(stack_MRC)

    flop = muon_flop({(rows, cols): count})
    n, m = sorted((rows, cols))
    size = 5 * 2.0 * count * (3 * n * m + 5 * n * n)
    shape = {"matrices": count, "rows": rows, "cols": cols}
    return Case("newton_schulz", shape, BF16, flop, size, 15, timed(make, size))
