"""The laws by which the twin turns work into seconds, stated once more, over many points at once.

Matrix products: ((FLOP / (peak x efficiency) x tiles x (1 + ramp / inner))^3 + (bytes /
bandwidth)^3)^(1/3) + launch. Attention: max(FLOP / (peak x share / (1 + ramp x bytes / FLOP)),
bytes / bandwidth) + launches. Links: bytes sent / bandwidth + hops x latency. Where they break is
said beside the twin's statements (docs/kernels.md, docs/collectives.md); the tests hold both equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

import numpy as np

from reference.measure.fitting import Array
from reference.measure.points import MeasuredPoint

OVERLAP: Final = 3
"""Exponent that joins arithmetic and memory (docs/kernels.md)."""
TILE_ROWS: Final = (64, 128)
TILE_COLS: Final = (64, 128, 192, 256)
"""Sides of the tiles that one SM computes (CUTLASS, DeepGEMM)."""
START_HOPS: Final = 16
"""What starting any collective costs, in hops (docs/collectives.md)."""

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a device could do at best, and what of it fits take as given: FLOP/s, bytes/s that its
    kernels reach, SMs, and seconds per launch of kernels other than products."""

    peak: float
    bandwidth: float
    sms: int
    launch: float


@dataclass(frozen=True, slots=True)
class Products:
    """Matrix products as arrays: FLOP, bytes, inner sums, how much longer whole tiles take than
    the products are large, groups, and which are the gradient of a weight."""

    flop: Array
    bytes: Array
    inner: Array
    tiles: Array
    groups: Array
    weight: Array


def products(points: Sequence[MeasuredPoint], sms: int, whole_tiles: bool) -> Products:
    """The products behind points whose shape has rows (of a group), cols, inner, and groups."""
    shapes = [point.shape for point in points]
    tiles = [idle(shape, sms) if whole_tiles else 1.0 for shape in shapes]
    return Products(
        np.array([point.flop for point in points]),
        np.array([point.bytes for point in points]),
        np.array([float(shape["inner"]) for shape in shapes]),
        np.array(tiles),
        np.array([shape.get("groups", 1) for shape in shapes]),
        np.array([point.op.endswith("_weight") for point in points]),
    )


def idle(shape: Mapping[str, int], sms: int) -> float:
    """How much longer the SMs work than a product is large, with the best tile: the last round of
    tiles leaves some idle."""
    groups, rows, cols = shape.get("groups", 1), shape["rows"], shape["cols"]
    least = min(
        ceil(groups * ceil(rows / high) * ceil(cols / wide) / sms) * sms * high * wide
        for high in TILE_ROWS
        for wide in TILE_COLS
    )
    return least / (groups * rows * cols)


@dataclass(frozen=True, slots=True)
class MatmulLaw:
    """What is fitted of the products of one precision."""

    efficiency: float
    ramp: float
    launch: float
    grouped: float = 1.0
    group_launch: float = 0.0
    weight_gradient: float = 1.0


def product_seconds(work: Products, law: MatmulLaw, ceilings: Ceilings) -> Array:
    """Seconds of each product."""
    reached = np.full(len(work.flop), law.efficiency)
    several = work.groups > 1
    reached = np.where(several, reached * law.grouped, reached)
    reached = np.where(work.weight, reached * law.weight_gradient, reached)
    arithmetic = work.flop * work.tiles * (1 + law.ramp / work.inner) / (ceilings.peak * reached)
    memory = work.bytes / ceilings.bandwidth
    busy = (arithmetic**OVERLAP + memory**OVERLAP) ** (1 / OVERLAP)
    return busy + law.launch + np.where(several, work.groups * law.group_launch, 0.0)


@dataclass(frozen=True, slots=True)
class AttentionLaw:
    """What is fitted of one direction of attention."""

    share: float
    ramp: float
    width: float
    launch: float


def attention_seconds(
    points: Sequence[MeasuredPoint], law: AttentionLaw, ceilings: Ceilings
) -> Array:
    """Seconds of each attention kernel."""
    flop = np.array([point.flop for point in points])
    moved = np.array([point.bytes for point in points])
    launches = np.array([point.kernels * law.launch for point in points])
    wide = np.array([(point.shape["query_key"] + point.shape["value"]) / 2 for point in points])
    slower = 1 + law.ramp * moved / flop + law.width / wide
    arithmetic = flop * slower / (ceilings.peak * law.share)
    return np.maximum(arithmetic, moved / ceilings.bandwidth) + launches


def sent(kind: Collective, payload: float, ranks: int) -> tuple[float, int]:
    """Bytes that a rank sends, and serial hops, of a collective within one node: rings (Patarasuk
    and Yuan 2009), all-to-all directly."""
    share = payload * (ranks - 1) / ranks
    if kind == "all_to_all":
        return share, START_HOPS + 1
    passes = 2 if kind == "all_reduce" else 1
    return passes * share, START_HOPS + passes * (ranks - 1)
