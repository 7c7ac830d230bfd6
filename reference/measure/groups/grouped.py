"""Grouped products: all experts of a rank in one call, forward and for the weights' gradients, with
equal groups, with a few that hold most rows, and with empty ones.

Legend: E experts of a rank, R rows of all of them, I inputs, O outputs. Kimi K2's 384 experts over
16 ranks are 24 a rank. The twin knows equal groups only: `profile` fits on these, and reports how
far the others are from them.
"""

from __future__ import annotations

import torch

from reference.kernels.grouped import grouped_matmul
from reference.measure.case import BF16, TYPES, WIDTH, Case, Setting, Skip, of_reach, random, timed
from reference.measure.clock import Call

RANK = 24
"""Experts of one rank at most: Kimi K2's under 16-way expert parallelism (report, section 2.4)."""


def cases(setting: Setting) -> list[Case | Skip]:
    """Both products of an expert: gate and up together, and down."""
    moe = setting.spec.moe
    if moe is None:
        return [Skip("grouped", "every shape", f"{setting.model} has no experts")]
    groups, D, F = min(moe.experts, RANK), setting.spec.hidden, moe.width
    found: list[Case] = []
    for inner, cols in ((D, 2 * F), (F, D)):
        for rows in _rows(setting):
            equal = [rows] * groups
            found += [_forward("grouped", equal, inner, cols), _weight(equal, inner, cols)]
        uneven = skewed(_rows(setting)[-1] * groups, groups)
        holes = [0 if e % 4 == 3 else n for e, n in enumerate(uneven)]
        found.append(_forward("grouped_uneven", uneven, inner, cols))
        found.append(_forward("grouped_empty", holes, inner, cols))
    return of_reach(found, "grouped", setting)


def skewed(rows: int, groups: int) -> list[int]:
    """Rows per group in proportion to 1, 1/2, 1/3, ... (Zipf); at least one each."""
    weights = [1 / (e + 1) for e in range(groups)]
    shares = [max(1, int(rows * w / sum(weights))) for w in weights]
    shares[0] += max(0, rows - sum(shares))
    return shares


def _rows(setting: Setting) -> tuple[int, ...]:
    """Rows per expert."""
    if setting.quick:
        return (16, 64)
    return (512, 1024, 2048, 4096, 8192) if setting.cuda else (16, 64, 256, 1024)


def _forward(op: str, counts: list[int], inner: int, cols: int) -> Case:
    def make(device: torch.device) -> Call:
        x_RI, w_EIO, ends_E = _inputs(device, counts, inner, cols)
        return lambda: grouped_matmul(x_RI, w_EIO, ends_E)

    shape = _shape(counts, counts[0], cols, inner)
    return _case(op, shape, (sum(counts), inner, cols), make)


def _weight(counts: list[int], inner: int, cols: int) -> Case:
    """Only the weights ask for a gradient, so that the rows' is not made."""

    def make(device: torch.device) -> Call:
        x_RI, w_EIO, ends_E = _inputs(device, counts, inner, cols)
        out_RO = grouped_matmul(x_RI, w_EIO.requires_grad_(), ends_E)
        dout_RO = torch.randn_like(out_RO)
        return lambda: torch.autograd.grad(out_RO, w_EIO, dout_RO, retain_graph=True)

    shape = _shape(counts, inner, cols, counts[0])
    return _case("grouped_weight", shape, (sum(counts), inner, cols), make)


def _inputs(
    device: torch.device, counts: list[int], inner: int, cols: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x_RI = random(device, TYPES[BF16], sum(counts), inner)
    w_EIO = random(device, TYPES[BF16], len(counts), inner, cols)
    ends_E = torch.tensor(counts, device=device).cumsum(0).to(torch.int32)
    return x_RI, w_EIO, ends_E


def _shape(counts: list[int], rows: int, cols: int, inner: int) -> dict[str, int]:
    """As a product: the rows of the result of one group, its columns, and what it sums over; where
    groups differ, of the fullest."""
    return {"groups": len(counts), "rows": rows, "cols": cols, "inner": inner}


def _case(op: str, shape: dict[str, int], work: tuple[int, int, int], make) -> Case:  # noqa: ANN001
    rows, inner, cols = work
    weights = shape["groups"] * inner * cols
    size = float(WIDTH[BF16] * (rows * inner + weights + rows * cols))
    return Case(op, shape, BF16, 2.0 * rows * inner * cols, size, 1, timed(make, size))
