"""The tensors of a checkpoint: how many bytes each has, and which ranks of an inference engine need
it.

FP8 is the released form of DeepSeek-V3 and Kimi K2: matrices in one byte per weight, each beside a
tensor of fp32 scales, one per block of 128 x 128; embedding, head, router, norms and the projection
of a prediction module in bf16; the router's correction bias in fp32. So Kimi K2 has 139,583
tensors and 1,029,173,249,888 bytes. Its files hold 61 constant rotary buffers more (6,832 bytes),
which are left out. A prediction module brings copies of embedding and head, as DeepSeek-V3's does.
Shared experts are one tensor per matrix. The order is that of the layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.arch.ops import Bucket
from twin.arch.parameters import Parameter, bucket
from twin.arch.stack import kinds, parameters_of
from twin.spec.model import ModelSpec

Precision = Literal["bf16", "fp8"]

HALF, SINGLE = 2, 4
"""Bytes of bf16 and of fp32."""
BLOCK: Final = 128
"""Rows, and columns, that share an FP8 scale."""
_NEVER_FP8: Final = frozenset({"router", "mtp_projection"})
"""Parts whose matrices stay in bf16 (DeepSeek-V3 report, section 3.3.1, and its files)."""
CUTS: Final[tuple[Bucket, ...]] = ("replicated", "tensor", "expert")
"""Who needs a tensor: every rank all of it; tensor ranks a part each; an expert's, one rank or
several of an instance."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Bytes of every tensor, in the order of the checkpoint, and who needs it (index into
    `CUTS`)."""

    bytes: NDArray[np.int64]
    cut: NDArray[np.int8]

    @property
    def tensors(self) -> int:
        """How many there are."""
        return len(self.bytes)

    @property
    def payload(self) -> int:
        """Bytes of all."""
        return int(self.bytes.sum())

    @property
    def largest(self) -> int:
        """Bytes of the largest."""
        return int(self.bytes.max())

    def by_cut(self) -> dict[Bucket, int]:
        """Bytes by who needs them."""
        return {name: int(self.bytes[self.cut == i].sum()) for i, name in enumerate(CUTS)}


def checkpoint(model: ModelSpec, precision: Precision) -> Checkpoint:
    """The checkpoint of a model."""
    made = {kind: _layer(parameters_of(model, kind), precision) for kind in set(kinds(model))}
    layers = [made[kind] for kind in kinds(model)]
    if model.mtp_layers:
        module = (*parameters_of(model, "embedding"), *parameters_of(model, "mtp"))
        layers += [_layer(module, precision), made["head"]] * model.mtp_layers
    return Checkpoint(
        np.concatenate([size for size, _ in layers]), np.concatenate([cut for _, cut in layers])
    )


def _layer(
    table: tuple[Parameter, ...], precision: Precision
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    sizes: list[NDArray[np.int64]] = []
    cuts: list[NDArray[np.int8]] = []
    for row in table:
        one = tuple(_tensors(row, precision))
        sizes.append(np.tile(np.asarray(one, np.int64), row.count))
        cuts.append(np.full(len(one) * row.count, CUTS.index(bucket(row)), np.int8))
    return np.concatenate(sizes), np.concatenate(cuts)


def _tensors(row: Parameter, precision: Precision) -> Iterator[int]:
    """Bytes of one of a row's tensors, and of its scales where it has some."""
    numbers = row.rows * row.columns
    if precision == "fp8" and row.role == "matrix" and row.part not in _NEVER_FP8:
        yield numbers
        yield SINGLE * ceil(row.rows / BLOCK) * ceil(row.columns / BLOCK)
    else:
        yield numbers * (SINGLE if row.role == "buffer" else HALF)
