"""The optimizer's step beside `torch.optim.Muon`, same thread, same matrices, same results."""

from __future__ import annotations

import json
from time import perf_counter, process_time

import pytest
import torch
from torch.nn import Parameter

from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec

pytestmark = pytest.mark.benchmark

LEAST, MOST = 1.0, 12.0
"""Seconds of one comparison. Other work on the machine only ever makes a step slower, in CPU time,
too, so that past the least the fastest steps seen so far decide."""

SHAPES = [
    (1, 16, 16),
    (1, 64, 128),
    (1, 128, 64),
    (1, 256, 256),
    (1, 32, 1024),
    (1, 1024, 32),
    (1, 512, 512),
    (1, 512, 1024),
    (1, 1024, 512),
    (2, 64, 128),
    (3, 100, 300),
    (4, 512, 1024),
    (8, 128, 256),
    (8, 256, 256),
    (16, 256, 128),
    (20, 512, 64),
    (64, 16, 32),
]
"""Matrices, their rows and columns."""


def matrices(count: int, rows: int, cols: int) -> list[Parameter]:
    generator = torch.Generator().manual_seed(0)
    made = [Parameter(torch.randn(rows, cols, generator=generator)) for _ in range(count)]
    for param in made:
        param.grad = torch.randn(rows, cols, generator=generator)
    return made


def times_faster(count: int, rows: int, cols: int, goal: float, *, stacked: bool = False) -> float:
    """Torch's fastest step over ours, the two taking turns."""
    theirs = matrices(count, rows, cols)
    ours = {f"layers.{n}.out.weight": p for n, p in enumerate(matrices(count, rows, cols))}
    if stacked:
        joined = Parameter(torch.stack([param.detach() for param in ours.values()]))
        joined.grad = torch.stack([p.grad for p in ours.values() if p.grad is not None])
        ours = {"layers.0.ffn.experts.down": joined}
    torchs = torch.optim.Muon(theirs, nesterov=False, adjust_lr_fn="match_rms_adamw")
    mine = MuonClip(ours.items(), OptimizerSpec(lr=1e-3, momentum_buffer="average"))
    fastest = [float("inf"), float("inf")]
    begun = perf_counter()
    while (spent := perf_counter() - begun) < LEAST or (
        fastest[0] < goal * fastest[1] and spent < MOST
    ):
        for index, optimizer in enumerate((torchs, mine)):
            start = process_time()
            optimizer.step()
            fastest[index] = min(fastest[index], process_time() - start)
    ratio = fastest[0] / fastest[1]
    name = f"{count} of {rows} x {cols}{', one tensor' if stacked else ''}"
    print(f"{name}: {fastest[1] * 1e3:.2f} ms, {ratio:.2f} times torch.optim.Muon's speed")
    return ratio


@pytest.mark.parametrize("stacked", [False, True])
def test_many_small_matrices_take_a_quarter_of_torchs_time(stacked):
    torch.set_num_threads(1)
    assert times_faster(128, 64, 128, 4.0, stacked=stacked) >= 4


@pytest.mark.parametrize(("count", "rows", "cols"), SHAPES)
def test_no_shape_is_slower_than_torch(count, rows, cols):
    torch.set_num_threads(1)
    assert times_faster(count, rows, cols, 0.95) >= 0.95


def table() -> None:
    """Every ratio with its bar, as JSON in the last line."""
    torch.set_num_threads(1)
    small, found = (128, 64, 128), []
    for stacked in (False, True):
        ratio = times_faster(*small, 0.0, stacked=stacked)
        found.append((f"{small}{', one tensor' if stacked else ''}", ratio, 3.0))
    found += [(str(shape), times_faster(*shape, 0.0), 0.95) for shape in SHAPES]
    print(json.dumps(found))
