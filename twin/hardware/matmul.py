"""Seconds of a matrix product by its shape: tiles on SMs, the ramp of each tile, and memory.

    arithmetic = FLOP / (peak x efficiency) x tiles x (1 + ramp / inner)
    memory     = bytes / (bandwidth x share)
    seconds    = (arithmetic^3 + memory^3)^(1/3) + launch + groups x group_launch

The last where one kernel has several groups: a GPU's schedules all at once, a CPU runs them one by
one.
`tiles` is how much longer the SMs work than the product is large: kernels cut the result into
tiles of one SM each, and the last round of tiles leaves SMs idle. The library is taken to choose
the best of its tiles. `ramp / inner` is what each tile spends on filling and emptying its pipeline,
in lengths of the inner sum. The third power lets the two overlap, but not for free where they are
equal (1.26 of either). Three numbers per precision are fitted (`twin.evidence.calibrate.hopper`),
on shapes of LLMs; docs/kernels.md has every row beside its prediction.

Tensor cores are fed 16 bytes at a time. A matrix whose rows are no multiple of that is read and
written by kernels that take single numbers (`unaligned`; NVIDIA, "Matrix Multiplication Background
User's Guide", section 3; cuBLAS calls them align1). Frameworks pad the vocabulary for it.

Efficiency is that of products timed one by one. One after the other they draw more power than the
limit allows, and clocks fall: `sustained`, one number per precision, fitted on such products.

It breaks for sides that no tile divides well (2,112 columns: 20 % too fast), for products between
others that draw little power, whose clocks stay high, and for operands that are still in L2 (small
ones: up to 20 % too slow).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import ceil
from types import MappingProxyType
from typing import Final, Literal

from twin.arch.ops import Product
from twin.spec.calibration import CalibrationSpec, MatmulSpec, Span
from twin.spec.cluster import GpuSpec

TILE_ROWS: Final = (64, 128)
TILE_COLS: Final = (64, 128, 192, 256)
"""Sides of the tiles that one SM of an A100, H100 or B200 computes (CUTLASS, DeepGEMM)."""
ALIGNED: Final = 16
"""Bytes that one load of a matrix's row takes."""
Peak = Literal["bf16_dense", "fp8_dense", "fp4_dense"]
"""A peak of the tensor cores, by the name of the GPU's field."""
_BYTES: Final[Mapping[Peak, float]] = MappingProxyType(
    {"bf16_dense": 2, "fp8_dense": 1, "fp4_dense": 0.5}
)
"""Bytes of a number, without its scale."""
OVERLAP: Final = 3
"""Exponent that joins arithmetic and memory; 1 would be no overlap, infinity a free one. Of 2, 3
and 4 the one with which the memory efficiency of bf16 and FP8 products comes out as one number."""


def law(product: Product | None, calibration: CalibrationSpec) -> MatmulSpec | None:
    """What the profile knows of products of this precision, if anything."""
    if product is None or calibration.matmuls is None:
        return None
    known = calibration.matmuls
    match product.precision:
        case "bf16":
            return known.bf16
        case "fp8":
            return known.fp8
        case "nvfp4" | "mxfp4":
            return known.fp4 or known.fp8


def arithmetic(flop: float, product: Product, known: MatmulSpec, gpu: GpuSpec) -> float:
    """Seconds on the tensor cores alone."""
    reached = known.efficiency * known.sustained
    if product.groups > 1:
        reached *= known.grouped
    if product.weight:
        reached *= known.weight_gradient
    if not aligned(product):
        reached *= known.unaligned
    stretch = idle(product, gpu.sms) if known.whole_tiles else 1.0
    ramp = 1.0 + known.ramp / max(1.0, _inner(product))
    return flop * stretch * ramp / (peak(gpu, product) * reached)


def peak_of(product: Product | None) -> Peak:
    """The peak of a product, by the name of the GPU's field; bf16 where there is none."""
    match product.precision if product is not None else "bf16":
        case "bf16":
            return "bf16_dense"
        case "fp8":
            return "fp8_dense"
        case "nvfp4" | "mxfp4":
            return "fp4_dense"


def briefly(calibration: CalibrationSpec) -> CalibrationSpec:
    """The profile for products that run by themselves, too briefly for clocks to fall."""
    known = calibration.matmuls
    if known is None:
        return calibration
    laws = {name: getattr(known, name) for name in type(known).model_fields}
    rested = {name: law.model_copy(update={"sustained": 1.0}) for name, law in laws.items() if law}
    return calibration.model_copy(update={"matmuls": known.model_copy(update=rested)})


def aligned(product: Product) -> bool:
    """Whether a row of every matrix is a multiple of 16 bytes. Of a weight's gradient the operands
    are activations, as wide as the result's sides; the inner sum counts their rows."""
    values = ALIGNED // _BYTES[peak_of(product)]
    widths = (product.rows if product.weight else product.k, product.cols)
    return all(width % values == 0 for width in widths)


def launches(product: Product, kernels: float, known: MatmulSpec) -> float:
    """Seconds that starting so many kernels of a product adds."""
    groups = product.groups if product.groups > 1 else 0
    return kernels * (known.launch + groups * known.group_launch)


def peak(gpu: GpuSpec, product: Product | None) -> float:
    """Dense FLOP/s of the tensor cores at the product's precision; bf16 where there is no product,
    or the GPU has no such tensor cores: a plan is refused then."""
    return getattr(gpu, peak_of(product)) or gpu.bf16_dense


def joined(arithmetic: float, memory: float) -> float:
    """Seconds of arithmetic and memory together; finite for the shortest and the longest."""
    longer, shorter = max(arithmetic, memory), min(arithmetic, memory)
    if longer == 0.0:
        return 0.0
    return longer * (1.0 + (shorter / longer) ** OVERLAP) ** (1.0 / OVERLAP)


def idle(product: Product, sms: int) -> float:
    """How much longer the SMs work than the product is large, with the best tile: at least 1."""
    copies, rows = _copies(product)
    return _padding(rows, product.cols, copies, sms)


def measured(product: Product, known: MatmulSpec) -> bool:
    """Whether sides and inner sum lie within those that were measured."""
    rows = _copies(product)[1]
    sides = (rows, product.cols)
    return all(_within(side, known.sides) for side in sides) and _within(
        _inner(product), known.inner
    )


@cache
def _padding(rows: int, cols: int, copies: int, sms: int) -> float:
    """Tiles in whole rounds of all SMs, over the result."""
    least = min(
        ceil(copies * ceil(rows / high) * ceil(cols / wide) / sms) * sms * high * wide
        for high in TILE_ROWS
        for wide in TILE_COLS
    )
    return least / (copies * rows * cols)


def _copies(product: Product) -> tuple[int, int]:
    """How many results there are, and the rows of each: groups have as many rows each."""
    if product.weight:
        return product.groups, product.rows
    return product.groups, max(1, ceil(product.rows / product.groups))


def _inner(product: Product) -> float:
    """The inner sum of one group."""
    return product.k / product.groups if product.weight else product.k


def _within(value: float, span: Span) -> bool:
    return span[0] <= value <= span[1]
