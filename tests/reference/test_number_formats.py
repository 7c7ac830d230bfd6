"""What to train in follows what the CPU multiplies by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from reference import number_formats
from reference.config import load_run
from reference.number_formats import cpu_bf16, fastest, fp32_by_onednn, words
from reference.optim import muon

NATIVE, OLDER = {"avx512_bf16": True, "avx2": True}, {"avx512_bf16": False, "avx2": True}


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    for asked in (cpu_bf16, fp32_by_onednn):
        asked.cache_clear()
    yield
    for asked in (cpu_bf16, fp32_by_onednn):
        asked.cache_clear()


@pytest.mark.parametrize(
    ("known", "allowed", "found", "precision"),
    [
        (NATIVE, None, "AVX512-BF16", "bf16"),
        ({**NATIVE, "amx_bf16": True}, None, "AMX", "bf16"),
        (NATIVE, "AVX512_CORE_VNNI", "", "fp32"),
        (NATIVE, "avx512_core_bf16", "AVX512-BF16", "bf16"),
        (OLDER, None, "", "fp32"),
    ],
)
def test_a_cpu_trains_in_bf16_where_it_has_it(
    monkeypatch: pytest.MonkeyPatch,
    known: dict[str, bool],
    allowed: str | None,
    found: str,
    precision: str,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if allowed:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", allowed)
    assert (cpu_bf16(), fastest("cpu")) == (found, precision)
    assert load_run("nano", ["train.device=cpu"]).train.precision == precision
    assert load_run("nano", ["train.precision=fp64"]).train.precision == "fp64"
    expected = torch.bfloat16 if found else torch.float32
    assert muon.worked_in(torch.float32, torch.device("cpu")) == expected
    assert muon.worked_in(torch.float64, torch.device("cpu")) == torch.float64


def test_a_run_s_first_line_says_what_it_computes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(number_formats, "fp32_by_onednn", lambda: False)
    monkeypatch.setattr(number_formats, "cpu_bf16", lambda: "AMX")
    assert words("bf16", "cpu") == "trains in bf16, by AMX, on 1 thread of the CPU"
    assert words("fp32", "cpu") == "trains in fp32, on 1 thread of the CPU"
    monkeypatch.setattr(number_formats, "cpu_bf16", lambda: "")
    assert words("fp32", "cpu") == "trains in fp32: this CPU has no bf16, on 1 thread of the CPU"
    assert "convert" in words("bf16", "cpu")
    assert words("bf16", "cuda:0") == "trains in bf16 on cuda:0"
    monkeypatch.setattr(number_formats, "fp32_by_onednn", lambda: True)
    assert words("fp32", "cpu").startswith("trains in fp32, by oneDNN: this CPU has no bf16")


@pytest.mark.parametrize(
    ("gain", "mkl", "found"), [(2.2, True, True), (1.15, True, False), (2.2, False, False)]
)
def test_onednn_multiplies_fp32_where_it_is_far_faster(
    monkeypatch: pytest.MonkeyPatch, gain: float, *, mkl: bool, found: bool
) -> None:
    monkeypatch.setattr(number_formats, "onednn_gain", lambda: gain)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert fp32_by_onednn() == found


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="no oneDNN")
def test_the_trial_of_onednn_sees_what_each_product_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that only the BLAS moves, then one that only oneDNN moves; threads stay."""
    passed = iter(range(10**6))
    monkeypatch.setattr(number_formats, "thread_time", lambda: float(next(passed)))
    torch.set_num_threads(2)
    assert number_formats.onednn_gain() == 1.0
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    now = [0.0]
    monkeypatch.setattr(number_formats, "thread_time", lambda: now[0])
    slow = torch.mm

    def mm(*pair: torch.Tensor) -> torch.Tensor:
        now[0] += 2.0
        return slow(*pair)

    monkeypatch.setattr(torch, "mm", mm)
    fast = torch.ops.mkldnn._linear_pointwise

    def onednn(*given: object) -> torch.Tensor:
        now[0] += 0.5
        return fast(*given)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", onednn)
    assert number_formats.onednn_gain() == 4.0


def test_matrices_come_out_alike_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = torch.randn(4, 48, 80, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(muon, "cpu_bf16", lambda: "AMX")
    rounded = muon.orthogonalize(stack)
    monkeypatch.setattr(muon, "cpu_bf16", lambda: "")
    exact = muon.orthogonalize(stack)
    assert (rounded.dtype, exact.dtype) == (torch.bfloat16, torch.float32)
    assert float((rounded - exact).abs().max()) < 0.02
