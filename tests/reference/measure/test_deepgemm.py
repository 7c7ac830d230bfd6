"""DeepGEMM's products as its README says they are called: a stand-in checks what it is given."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.measure import clock
from reference.measure.groups import GROUPS
from reference.measure.groups.deepgemm import MISSING, deepgemm_cases
from reference.measure.points import Skip, TimedCase
from tests.reference.measure.machines import exactly, setting

Scaled = tuple[Tensor, Tensor]


def wide(x: Scaled, block: int) -> Tensor:
    """Values times the scales of their tiles."""
    values, scales = x
    assert values.dtype == torch.float8_e4m3fn
    scales = scales.repeat_interleave(128, -1)
    scales = scales.repeat_interleave(block, -2)[..., : values.shape[-2], :]
    assert scales.shape == values.shape
    return values.float() * scales


def deep_gemm() -> ModuleType:
    def fp8_gemm_nt(x: Scaled, w: Scaled, out: Tensor) -> Tensor:
        return out.copy_(wide(x, 1) @ wide(w, 128).T)

    def m_grouped_fp8_gemm_nt_contiguous(
        x: Scaled, w: Scaled, out: Tensor, expert: Tensor
    ) -> Tensor:
        assert expert.dtype == torch.int32
        assert expert.shape == (len(out),)
        counts = expert.bincount()
        assert bool((counts % 128 == 0).all())
        return out.copy_(torch.einsum("rk,rnk->rn", wide(x, 1), wide(w, 128)[expert.long()]))

    module = ModuleType("deep_gemm")
    module.__dict__.update(
        fp8_gemm_nt=fp8_gemm_nt,
        m_grouped_fp8_gemm_nt_contiguous=m_grouped_fp8_gemm_nt_contiguous,
    )
    module.__spec__ = type(sys.__spec__)("deep_gemm", None)
    return module


@pytest.mark.parametrize("groups", [1, 3])
def test_its_products_are_called_as_it_asks(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    monkeypatch.setitem(sys.modules, "deep_gemm", deep_gemm())
    ran: list[Tensor] = []
    monkeypatch.setattr(clock, "measure", lambda calls, *_: (ran.append(calls[0]()), exactly(1))[1])
    (case,) = deepgemm_cases("gemm", [(128, 192, 256)], groups)
    assert isinstance(case, TimedCase)
    here: Any = setting("cpu", "kimi-k2-nano")
    case.run(here)
    assert ran[0].shape == (groups * 128, 192)
    assert bool(ran[0].isfinite().all())
    assert case.flop == 2 * groups * 128 * 192 * 256


@pytest.mark.parametrize("group", ["gemm", "grouped"])
def test_a_gpu_without_it_says_so(group: str) -> None:
    found = [one for one in GROUPS[group](setting("cuda", "kimi-k2")) if isinstance(one, Skip)]
    assert MISSING in {one.why for one in found}
