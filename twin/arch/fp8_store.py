"""Activations that wait in FP8 for their backward pass: which, in how many bytes, and the kernels
that pack and unpack them.

Source: Kimi K2 report (arXiv:2507.20534, section 2.4): inputs of MoE up-projections and of SwiGLU
are stored as FP8-E4M3 in tiles of 1 x 128 with an fp32 scale each. Nothing is computed in FP8 for
it: a kernel packs the bf16 numbers once they were used, another unpacks them before the backward
pass needs them.

- `moe_up_input` is what routed experts read, a copy per chosen expert. What shared experts read is
  the norm's output, which other ops need too. Under FP8 training it is in FP8 anyway.
- `swiglu_input` is gate and up of routed experts, of shared experts and of dense SwiGLU blocks.

Left out: rounding, which no time depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from twin.arch.kernels import ELEMENT, FP8, streaming
from twin.arch.ops import Item, Layer, Op, Work
from twin.arch.recompute import wholly
from twin.spec.memory import MemorySpec

_SWIGLU_INPUT: Final[Mapping[str, str]] = MappingProxyType(
    {"experts_swiglu": "experts_up", "shared_swiglu": "shared_up", "ffn_swiglu": "ffn_up"}
)
"""The op that reads gate and up -> the op that keeps them."""


def packed_bytes(saved: float) -> float:
    """Bytes in FP8 of a tensor that is `saved` bytes in bf16."""
    return saved / ELEMENT * FP8


def stored(layer: Layer, memory: MemorySpec) -> dict[str, str]:
    """Names of a layer's ops that read what is kept in FP8 -> names of the items that keep it. None
    in a layer of which only the input is kept."""
    if not memory.fp8_store or wholly(layer, memory.recompute):
        return {}
    readers = {item.name: item for item in reversed(layer.items) if isinstance(item, Op)}
    found: dict[str, str] = {}
    up = readers.get("experts_up")
    if "moe_up_input" in memory.fp8_store and up is not None and not _multiplies_fp8(up):
        found["experts_up"] = next(
            item.name for item in layer.items if item.name.startswith("dispatch") and item.saved
        )
    if "swiglu_input" in memory.fp8_store:
        found |= {reader: maker for reader, maker in _SWIGLU_INPUT.items() if reader in readers}
    return found


def packing(layer: Layer, memory: MemorySpec) -> Layer:
    """The layer with the kernels that pack what it keeps in FP8, each behind the op that reads it:
    so packing follows the forward use, and unpacking precedes the backward's."""
    keeps = stored(layer, memory)
    if not keeps:
        return layer
    saved = {item.name: item.saved for item in layer.items if item.saved}
    items: list[Item] = []
    for item in layer.items:
        items.append(item)
        if isinstance(item, Op) and (kept := keeps.pop(item.name, None)):
            items.append(replace(_pack(kept, saved[kept]), aside=item.aside))
    return replace(layer, items=tuple(items))


def _multiplies_fp8(op: Op) -> bool:
    product = op.forward.product
    return product is not None and product.precision == "fp8"


def _pack(name: str, size: float) -> Op:
    """Reads the bf16 tensor and writes FP8 with scales; backward the other way."""
    moved = Work(0.0, size + packed_bytes(size), 1)
    return streaming(f"fp8_pack_{name}", moved, moved, 0.0, 0.0, "cast")
