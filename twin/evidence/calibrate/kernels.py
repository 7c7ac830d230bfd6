"""Published kernels as work: what each measured kernel did, and what a profile says it takes.

The rows are in `scenarios/published`, with their sources. A kernel is priced as a planner's is
(`twin.hardware.price`). Where a library's call does more than a kernel of the twin (the cast of its
input), the row says so, and the cast is priced beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ruamel.yaml import YAML

from twin.arch.kernels import ACCUMULATE, ELEMENT, FP8, FP8_WEIGHT, SINGLE
from twin.arch.ops import OpClass, Precision, Product, Work
from twin.hardware import seconds
from twin.loading.files import shipped_folder
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec

CAST_BANDWIDTH: Final = 0.54
"""Share of the memory's bandwidth that TensorRT-LLM's cast to FP8 blocks reaches (H100), fitted
together with its products: 0.536 +- 0.02."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One measured kernel: the file and the row it is from, its shape in words, what it did, and
    seconds. `cast` are values of its input that it turned to FP8 first."""

    file: str
    row: str
    shape: str
    op_class: OpClass
    work: Work
    measured: float
    backward: bool = False
    cast: int = 0

    def predicted(self, gpu: GpuSpec, calibration: CalibrationSpec) -> float:
        """Seconds that the profile gives for it."""
        alone = seconds(self.op_class, self.work, gpu, calibration, self.backward)
        moved = (ELEMENT + FP8) * self.cast
        return alone + moved / (gpu.memory_bandwidth * CAST_BANDWIDTH)

    def error(self, gpu: GpuSpec, calibration: CalibrationSpec) -> float:
        """Logarithm of predicted over measured."""
        return log(self.predicted(gpu, calibration) / self.measured)


FILES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "h800-hopper-bf16": (
            "gemm-h100-bf16",
            "gemm-h100-bf16-grouped",
            "deepgemm-h800",
            "deepgemm-h800-weight-gradient",
        ),
        "h100-hopper-bf16": (
            "gemm-h100-bf16",
            "gemm-h100-bf16-grouped",
            "gemm-h100-fp8-block",
            "attention-h100",
        ),
    }
)
"""The files of rows that a profile's numbers for kernels are fitted on."""


def kernels(profile: str) -> tuple[Kernel, ...]:
    """The measured kernels behind a profile, in the order of its files; none for most profiles."""
    return tuple(kernel for file in FILES.get(profile, ()) for kernel in published(file))


class NotPriced(ValueError):  # noqa: N818  a row without a kernel of the twin, not an error
    """Why no kernel of the twin is what a row measured."""


@cache
def published(file: str) -> tuple[Kernel, ...]:
    """The kernels of one file, each shape once per row; where two rows say the same of a shape (two
    snapshots of a library), it counts once."""
    found: dict[tuple[str, float], Kernel] = {}
    for row in _rows(shipped_folder() / "published" / f"{file}.yaml"):
        for kernel in read(row, file):
            found.setdefault((kernel.shape, kernel.measured), kernel)
    return tuple(found.values())


def _rows(path: Path) -> list[dict[str, Any]]:
    # ruamel leaves the type of its streams open.
    text = YAML(typ="safe").load(path)  # pyright: ignore[reportUnknownMemberType]
    return text["measurements"]


def read(row: Mapping[str, Any], file: str = "") -> tuple[Kernel, ...]:
    """The kernels of one published row, by what it says of them: sides of products, or heads and
    sequences of attention. Raises `NotPriced` for kernels that the twin does not have, and for
    rates without a shape."""
    metrics = row["metrics"]
    known = {*metrics, *metrics.get("columns", ())}
    for words, reason in _OTHERS.items():
        if words in known:
            raise NotPriced(reason)
    if {"series", "head_dim", "heads", "kv_heads", "seq"} <= known:
        return tuple(_attention(file, row))
    if "shape" in metrics:
        return read({**row, "metrics": _best(metrics)}, file)
    if not ({"series", "n"} <= known and known & {"m", "m_per_group"}):
        raise NotPriced("a rate without all that tells the shape of its kernel")
    if metrics.get("direction") == "weight gradient":
        return tuple(_weight_gradients(file, row))
    words = str(row.get("precision", "")).lower()
    if words == "fp8":
        raise NotPriced("FP8 with one scale per tensor, timed with a cast that no profile knows")
    precision: Precision = "fp8" if "fp8" in words else "bf16"
    return tuple(_products(file, row, precision=precision, cast=words == "fp8_block"))


def _best(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The best product of a search over shapes, `m x n x k`, as one of a series."""
    sides = [int(side) for side in metrics["shape"].split("x")]
    series = [[*sides, metrics["max_achievable_matmul_tflops"]]]
    return {"columns": ["m", "n", "k", "tflops"], "series": series}


_OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "inter": "a fused inference kernel of experts, whose time grows with the tokens of all "
        "ranks: no grouped product",
        "qk_latent_dim": "latent attention in its absorbed form, which training does not use",
    }
)
"""Metrics that tell kernels which the twin does not have, and what these are."""


def _products(
    file: str, row: Mapping[str, Any], *, precision: Precision, cast: bool
) -> Iterator[Kernel]:
    """Products m x k by k x n, of one or of several groups, in milliseconds or TFLOP/s; columns
    may leave out what the whole row shares. `cast`: timed with the cast of their input."""
    metrics = row["metrics"]
    for values in metrics["series"]:
        entry = {**metrics, **dict(zip(metrics["columns"], values, strict=True))}
        groups, rows = entry.get("groups", 1), entry.get("m") or entry["m_per_group"]
        cols, inner = entry["n"], entry["k"]
        work = _product(Product(rows * groups, cols, inner, groups, precision))
        time = entry["ms"] * 1e-3 if "ms" in entry else work.flop / (entry["tflops"] * 1e12)
        yield Kernel(
            file,
            row["id"],
            f"{_grouped(groups)}{rows:,} x {cols:,} x {inner:,}",
            "grouped_gemm" if groups > 1 else "gemm",
            work,
            time,
            cast=rows * inner if cast else 0,
        )


def _product(product: Product) -> Work:
    """The work of a product whose result is bf16."""
    own, weight = (FP8, FP8_WEIGHT) if product.precision == "fp8" else (ELEMENT, ELEMENT)
    read = own * product.rows * product.inner + weight * product.groups * product.inner * (
        product.cols
    )
    moved = read + ELEMENT * product.rows * product.cols
    return Work(2.0 * product.rows * product.cols * product.inner, moved, 1, product)


def _weight_gradients(file: str, row: Mapping[str, Any]) -> Iterator[Kernel]:
    """Gradients of weights m x n, summed over k rows of each group and added to an fp32 result."""
    metrics = row["metrics"]
    for values in metrics["series"]:
        entry = dict(zip(metrics["columns"], values, strict=True))
        groups, rows, cols = entry.get("groups", 1), entry["m"], entry["n"]
        inner = entry.get("k") or entry["k_per_group"]
        product = Product(rows, cols, inner * groups, groups, "fp8", weight=True)
        flop = 2.0 * rows * cols * product.inner
        moved = FP8 * product.inner * (rows + cols) + ACCUMULATE * groups * rows * cols
        yield Kernel(
            file,
            row["id"],
            f"{_grouped(groups)}{rows:,} x {cols:,} x {inner:,}",
            "grouped_gemm" if groups > 1 else "gemm",
            Work(flop, moved, 1, product),
            flop / (entry["tflops"] * 1e12),
            backward=True,
        )


def _attention(file: str, row: Mapping[str, Any]) -> Iterator[Kernel]:
    """Attention of one head size: forward two products, backward five."""
    metrics = row["metrics"]
    backward = metrics.get("direction") == "backward"
    size, heads, key_value = metrics["head_dim"], metrics["heads"], metrics["kv_heads"]
    for values in metrics["series"]:
        entry = dict(zip(metrics["columns"], values, strict=True))
        sequence = entry["seq"]
        tokens = metrics.get("tokens", sequence)
        scores = heads * tokens * sequence * (0.5 if metrics["causal"] else 1.0)
        flop = (10.0 if backward else 4.0) * size * scores
        moved = ELEMENT * size * tokens * 2 * (heads + key_value) * (2 if backward else 1)
        work = Work(flop, moved + SINGLE * tokens * heads, 3 if backward else 1, width=size)
        time = entry["ms"] * 1e-3 if "ms" in entry else flop / (entry["tflops"] * 1e12)
        kind = "" if metrics["causal"] else ", not causal"
        yield Kernel(
            file,
            row["id"],
            f"{heads} heads of {size} ({key_value} of keys), {sequence:,} tokens{kind}",
            "attention",
            work,
            time,
            backward,
        )


def _grouped(groups: int) -> str:
    return f"{groups} x " if groups > 1 else ""
