"""Products of rows grouped by expert on a GPU: torch's grouped kernel, Transformer Engine's, or a
product per expert.

torch's comes first: it reads the counts of rows on the device, where the router left them. The
others wait for the counts on the host. DeepGEMM's wants every expert's rows in multiples of 128,
which a router does not give; `reference.measure` times it.

Legend: R rows sorted by expert, E experts, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm

from reference.kernels.libraries import Choice, agree, choose, drawn, installed

_TE: Final = "transformer_engine.pytorch.cpp_extensions"
_TRIAL: Final = (0, 24, 24, 64)
"""Ends of the trial's experts, of which two have no rows."""


class GroupedProducts(Protocol):
    """Both products that experts need."""

    def by_expert(self, rows_RI: Tensor, weights_EIO: Tensor, ends_E: Tensor) -> Tensor:
        """Every row times its expert's weight: [R, O]."""
        ...

    def of_experts(self, left_RI: Tensor, right_RO: Tensor, ends_E: Tensor) -> Tensor:
        """Over each expert's rows `left^T right`: [E, I, O], zero where it has none."""
        ...


class ByTorch:
    """One kernel for all experts."""

    def by_expert(self, rows_RI: Tensor, weights_EIO: Tensor, ends_E: Tensor) -> Tensor:
        """As the protocol says."""
        return grouped_mm(rows_RI, weights_EIO, offs=ends_E)

    def of_experts(self, left_RI: Tensor, right_RO: Tensor, ends_E: Tensor) -> Tensor:
        """As the protocol says."""
        return grouped_mm(left_RI.T, right_RO, offs=ends_E)


class ByTransformerEngine:
    """cuBLAS products of all experts, on several streams. `multiply` is Transformer Engine's
    `general_grouped_gemm`: B times A, whose letters of `layout` say which side lies transposed in
    memory, A's first."""

    def __init__(self, multiply: Callable[..., Any]) -> None:
        self._multiply = multiply

    def by_expert(self, rows_RI: Tensor, weights_EIO: Tensor, ends_E: Tensor) -> Tensor:
        """As the protocol says."""
        turned = weights_EIO.transpose(1, 2)
        layout, held = ("TN", turned) if turned.is_contiguous() else ("NN", weights_EIO)
        counts = _counts(ends_E)
        out_RO = rows_RI.new_empty(rows_RI.shape[0], weights_EIO.shape[2])
        self._multiply(
            *(list(held.unbind()), list(rows_RI.split(counts)), [out_RO]),
            *([None] * len(counts), rows_RI.dtype),
            layout=layout,
            m_splits=counts,
            single_output=True,
        )
        return out_RO

    def of_experts(self, left_RI: Tensor, right_RO: Tensor, ends_E: Tensor) -> Tensor:
        """As the protocol says."""
        counts = _counts(ends_E)
        out_EIO = left_RI.new_zeros(len(counts), left_RI.shape[1], right_RO.shape[1])
        self._multiply(
            *(list(right_RO.split(counts)), list(left_RI.split(counts)), list(out_EIO.unbind())),
            *([None] * len(counts), left_RI.dtype),
            layout="NT",
            m_splits=counts,
            grad=True,
        )
        return out_EIO


class ByLoop:
    """A product per expert."""

    def by_expert(self, rows_RI: Tensor, weights_EIO: Tensor, ends_E: Tensor) -> Tensor:
        """As the protocol says."""
        out_RO = rows_RI.new_empty(rows_RI.shape[0], weights_EIO.shape[2])
        for weight_IO, (start, end) in zip(weights_EIO, spans(ends_E), strict=True):
            torch.mm(rows_RI[start:end], weight_IO, out=out_RO[start:end])
        return out_RO

    def of_experts(self, left_RI: Tensor, right_RO: Tensor, ends_E: Tensor) -> Tensor:
        """As the protocol says."""
        out_EIO = left_RI.new_empty(len(ends_E), left_RI.shape[1], right_RO.shape[1])
        for out_IO, (start, end) in zip(out_EIO, spans(ends_E), strict=True):
            torch.mm(left_RI[start:end].T, right_RO[start:end], out=out_IO)
        return out_EIO


def spans(ends_E: Tensor) -> list[tuple[int, int]]:
    """First row of each expert and the one behind its last, on the host."""
    return list(pairwise((0, *ends_E.tolist())))


def _counts(ends_E: Tensor) -> list[int]:
    return [end - start for start, end in spans(ends_E)]


@cache
def grouped_products(device: torch.device) -> Choice[GroupedProducts]:
    """What multiplies experts' rows on a GPU."""

    def engine() -> GroupedProducts:
        installed("transformer_engine")
        return ByTransformerEngine(import_module(_TE).general_grouped_gemm)

    candidates: dict[str, Callable[[], GroupedProducts]] = {
        "torch's grouped_mm": ByTorch,
        "Transformer Engine": engine,
        "a product per expert": ByLoop,
    }
    return choose("products of experts", candidates, lambda one: _try(one, device))


def _try(products: GroupedProducts, device: torch.device) -> None:
    """Weights as they lie in memory, and transposed; gradients of weights."""
    ends_E = torch.tensor(_TRIAL, dtype=torch.int32, device=device)
    rows, dout = (drawn(64, width, device=device, seed=width) for width in (128, 256))
    held = drawn(4, 128, 256, device=device, seed=1)
    turned = held.transpose(1, 2).contiguous().transpose(1, 2)

    def made(by: GroupedProducts) -> list[Tensor]:
        given = [by.by_expert(rows, weights, ends_E) for weights in (held, turned)]
        return [*given, by.of_experts(rows, dout, ends_E)]

    agree(made(products), made(ByLoop()))
