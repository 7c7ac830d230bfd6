"""The probe of libraries: who is taken, who is not and why. Stand-ins compute what each library's
interface promises, so that what is passed to them is checked without a GPU."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.kernels import attention_blocks, attention_cuda, grouped_libraries
from reference.kernels.libraries import UnfitError, agree, choose, installed

CPU = torch.device("cpu")
ONES = torch.ones(4, 4)


@pytest.fixture(autouse=True)
def asked_anew():
    yield
    attention_cuda.fused_attention.cache_clear()
    grouped_libraries.grouped_products.cache_clear()


def missing() -> Tensor:
    installed("no_such_library_as_this")
    return ONES


def broken() -> Tensor:
    raise TypeError("takes 3 arguments\nat some depth")


def test_the_first_that_agrees_is_taken_and_the_line_says_why_others_are_not():
    candidates = {
        "A": missing,
        "B": broken,
        "C": lambda: ONES * 1.1,
        "D": lambda: ONES * float("nan"),
        "E": lambda: ONES,
        "F": broken,
    }
    choice = choose("sums", candidates, lambda made: agree([made], [ONES]))
    assert choice.name == "E"
    assert str(choice) == (
        "sums: E (A is not installed; B fails: TypeError: takes 3 arguments; "
        "C differs from PyTorch by 10.0%; D differs from PyTorch by nan%)"
    )


def test_ours_is_taken_untried_where_no_library_is_fit():
    def refuses(_: object) -> None:
        raise UnfitError("is for Hopper")

    choice = choose("sums", {"A": lambda: 1, "ours": lambda: 2}, refuses)
    assert (choice.compute, str(choice)) == (2, "sums: ours (A is for Hopper)")


def test_a_trial_draws_nothing_from_torchs_generators():
    before = torch.get_rng_state()
    grouped_libraries.grouped_products(CPU)
    assert torch.equal(torch.get_rng_state(), before)


def engine(factor: float = 1.0) -> ModuleType:
    """Transformer Engine's grouped product: B times A, each transposed as `layout` says."""

    def general_grouped_gemm(  # noqa: PLR0917 - Transformer Engine's own
        A: list[Tensor],
        B: list[Tensor],
        out: list[Tensor],
        quantization_params: list[None],
        out_dtype: torch.dtype,
        layout: str = "TN",
        m_splits: list[int] | None = None,
        grad: bool = False,
        single_output: bool = False,
    ) -> None:
        assert len(A) == len(B) == len(quantization_params)
        assert m_splits is not None
        assert grad == (layout == "NT")
        outs = list(out[0].split(m_splits)) if single_output else out
        for a, b, made in zip(A, B, outs, strict=True):
            assert a.is_contiguous()
            right, left = (a.T if layout[0] == "T" else a), (b.T if layout[1] == "T" else b)
            made.copy_((factor * (left.float() @ right.float())).to(out_dtype))

    module = ModuleType("transformer_engine.pytorch.cpp_extensions")
    module.__dict__["general_grouped_gemm"] = general_grouped_gemm
    return module


@pytest.mark.parametrize(
    ("factor", "name", "why"),
    [
        (1.0, "Transformer Engine", "torch's grouped_mm fails: RuntimeError: no kernel"),
        (1.1, "a product per expert", "Transformer Engine differs from PyTorch by 10.0%"),
    ],
)
def test_experts_go_to_transformer_engine_where_torch_cannot(monkeypatch, factor, name, why):
    def refuses(*_: object, **__: object) -> Tensor:
        raise RuntimeError("no kernel for this GPU")

    monkeypatch.setattr(grouped_libraries, "grouped_mm", refuses)
    monkeypatch.setattr(grouped_libraries, "installed", lambda _: None)
    monkeypatch.setitem(sys.modules, "transformer_engine.pytorch.cpp_extensions", engine(factor))
    choice = grouped_libraries.grouped_products(CPU)
    assert choice.name == name
    assert why in str(choice)


def test_experts_stay_with_torch_where_it_multiplies_them():
    assert str(grouped_libraries.grouped_products(CPU)) == "products of experts: torch's grouped_mm"


class Flash3:
    """What torch's flash kernel does once FlashAttention-3 is behind it: values as wide as they
    are."""

    def __init__(self, error: float) -> None:
        self.error, self.widths = error, set[int]()

    def _scaled_dot_product_flash_attention(
        self, q: Tensor, k: Tensor, v: Tensor, dropout: float, causal: bool, *, scale: float
    ) -> tuple[Tensor, Tensor]:
        assert (dropout, causal) == (0.0, True)
        self.widths.add(v.shape[3])
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out, lse, _ = attention_blocks.forward(q, k, v, scale)
        return (out * self.error).transpose(1, 2), lse

    def _scaled_dot_product_flash_attention_backward(self, *given: Any, scale: float) -> Any:
        dout, q, k, v, out, lse = given[:6]
        assert lse.shape == q.shape[:3]
        saved = tuple(x.transpose(1, 2) for x in (q, k, v, out))
        made = attention_blocks.backward(dout.transpose(1, 2), saved, scale)
        return tuple(x.transpose(1, 2) for x in made)


@pytest.mark.parametrize(
    ("major", "there", "error", "line"),
    [
        (9, True, 1.0, "attention: FlashAttention-3"),
        (9, True, 1.1, "(FlashAttention-3 differs from PyTorch by 10.0%)"),
        (9, False, 1.0, "(FlashAttention-3 is not installed)"),
        (10, True, 1.0, "(FlashAttention-3 is for Hopper)"),
    ],
)
def test_flash_attention_3_is_taken_on_hopper_where_it_is_right(
    monkeypatch, major, there, error, line
):
    flash, active = Flash3(error), []
    switch = SimpleNamespace(
        activate_flash_attention_impl=active.append,
        restore_flash_attention_impl=active.clear,
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (major, 0))
    monkeypatch.setattr(attention_cuda, "torch_attention", switch)
    monkeypatch.setattr(attention_cuda, "aten", flash)
    for takes in ("_cudnn_takes", "_flash_takes"):
        monkeypatch.setattr(attention_cuda, takes, lambda *_: True)
    if there:
        monkeypatch.setattr(attention_cuda, "installed", lambda _: None)
    choice = attention_cuda.fused_attention(CPU)
    taken = choice.compute == "flash 3"
    assert str(choice).endswith(line)
    assert active == (["FA3"] if taken else [])
    assert taken == (error == 1.0 and there and major == 9)
    assert flash.widths <= {128}
