"""Published kernels as work: what each measured kernel did, and what a profile predicts for it; and
four layers of DeepSeek-V3 by class of kernels, compared with DeepSeek's own training trace.

The rows are in `scenarios/published`, with their sources. A kernel is priced as a planner's is
(`twin.hardware.price`). Where a library's call does more than a kernel of the twin (the cast of its
input), the row says so, and the cast is priced beside it.

The trace (profile-data, train.json) is of one forward and one backward of four layers with experts
on one of 64 H800, in FP8, while DeepEP holds SMs nearly all the time. Nothing is fitted to its
totals but attention and `contention`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import log
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from twin.arch.kernels import ACCUMULATE, ELEMENT, FP8, FP8_WEIGHT, SINGLE
from twin.arch.ops import Op, OpClass, Precision, Product, Shape, Work
from twin.arch.recompute import again
from twin.arch.stack import layers
from twin.hardware.matmul import briefly
from twin.hardware.roofline import price, seconds, slowdown
from twin.loading import load_part
from twin.loading.files import read_data, shipped_folder
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
    beside: tuple[tuple[OpClass, Work], ...] = ()
    """What else the same call did, one after the other."""
    continuous: bool = False
    """Whether others like it ran before and behind it, so that clocks had fallen."""

    def predicted(self, gpu: GpuSpec, calibration: CalibrationSpec) -> float:
        """Seconds that the profile gives for it."""
        if not self.continuous:
            calibration = briefly(calibration)
        alone = seconds(self.op_class, self.work, gpu, calibration, self.backward)
        alone += sum(seconds(kind, work, gpu, calibration) for kind, work in self.beside)
        moved = (ELEMENT + FP8) * self.cast
        return alone + moved / (gpu.memory_bandwidth * CAST_BANDWIDTH)

    def error(self, gpu: GpuSpec, calibration: CalibrationSpec) -> float:
        """Logarithm of predicted over measured."""
        return log(self.predicted(gpu, calibration) / self.measured)


FILES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "h800-hopper-bf16": (
            "gemm-h100-bf16",
            "gemm-h100-fp16-continuous",
            "gemm-h100-bf16-grouped",
            "deepgemm-h800",
            "deepgemm-h800-weight-gradient",
        ),
        "h100-hopper-bf16": (
            "gemm-h100-bf16",
            "gemm-h100-fp16-continuous",
            "gemm-h100-bf16-grouped",
            "gemm-h100-fp8-block",
            "attention-h100",
        ),
        "a100-ampere-bf16": ("gemm-a100-bf16", "gemm-a100-fp16-continuous"),
    }
)
"""The files of rows that a profile's numbers for kernels are fitted on."""


def kernels(profile: str) -> tuple[Kernel, ...]:
    """The measured kernels behind a profile, in the order of its files; none for most profiles."""
    return tuple(kernel for file in FILES.get(profile, ()) for kernel in published(file))


_Reader: TypeAlias = Callable[[str, Mapping[str, Any]], Iterator[Kernel]]


class NotPriced(ValueError):  # noqa: N818  a row without a kernel of the twin, not an error
    """Why no kernel of the twin is what a row measured."""


@cache
def published(file: str) -> tuple[Kernel, ...]:
    """The kernels of one file, each shape once per row; where two rows say the same of a shape (two
    snapshots of a library), it counts once."""
    found: dict[tuple[str, float], Kernel] = {}
    for row in read_data(shipped_folder() / "published" / f"{file}.yaml")["measurements"]:
        for kernel in read(row, file):
            found.setdefault((kernel.shape, kernel.measured), kernel)
    return tuple(found.values())


def read(row: Mapping[str, Any], file: str = "") -> tuple[Kernel, ...]:
    """The kernels of one published row, by what it says of them: sides of products, or heads and
    sequences of attention. Raises `NotPriced` for kernels that the twin does not have, and for
    rates without a shape."""
    metrics = row["metrics"]
    known = {*metrics, *metrics.get("columns", ())}
    for told, reader in _READERS:
        if told <= known:
            return tuple(reader(file, row))
    if "max_achievable_matmul_tflops" in metrics:
        return read({**row, "metrics": _best(metrics)}, file)
    if not ({"series", "n"} <= known and known & {"m", "m_per_group"}):
        raise NotPriced("not told: the shape of the kernel whose rate it is")
    if metrics.get("direction") == "weight gradient":
        return tuple(_weight_gradients(file, row))
    words = str(row.get("precision", "")).lower()
    precision: Precision = "fp8" if "fp8" in words else "bf16"
    cast = words == "fp8_block" or (words == "fp8" and "ms" in known)
    return tuple(_products(file, row, precision=precision, cast=cast))


WIDEST: Final = 20_480
"""Sides of products up to which ml-engineering's search for the best goes (`mamf-finder.py`)."""


def _best(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The best product of a search over shapes, `m x n x k`, as one of a series. Where the best
    shape is not told, that is the widest, by the law of products."""
    widest = f"{WIDEST}x{WIDEST}x{WIDEST}"
    sides = [int(side) for side in metrics.get("shape", widest).split("x")]
    series = [[*sides, metrics["max_achievable_matmul_tflops"]]]
    return {"columns": ["m", "n", "k", "tflops"], "series": series}


_TOLD: Final = {"heads": "how many heads", "causal": "whether attention is causal"}
"""Facts that a rate of attention has no shape without."""


def _attention_rates(file: str, row: Mapping[str, Any]) -> Iterator[Kernel]:
    """Attention of one configuration, TFLOP/s by sequence, of each library that has them."""
    metrics = row["metrics"]
    config: dict[str, Any] = metrics["config"]
    if "limited" in str(row.get("system", {}).get("gpu", "")):
        raise NotPriced("not told: the power limit of the GPU")
    for name, fact in _TOLD.items():
        if name not in config:
            raise NotPriced(f"not told: {fact}")
    sequences = _listed(config["seq"])
    for library in ("fa3", "cudnn"):
        rates = metrics.get(f"{library}_fwd_tflops", metrics.get(f"{library}_tflops"))
        if rates is None:
            continue
        for sequence, rate in zip(sequences, _listed(rates), strict=True):
            sizes = {name: config[name] for name in ("head_dim", "heads", "causal")}
            series = {"columns": ["seq", "tflops"], "series": [[sequence, rate]]}
            tokens = config["batch"] * sequence
            one = {**sizes, "kv_heads": config["heads"], "tokens": tokens, **series}
            for kernel in _attention(file, {**row, "metrics": one}):
                yield replace(kernel, shape=f"{kernel.shape}, {library}")


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _latent_attention(file: str, row: Mapping[str, Any]) -> Iterator[Kernel]:
    """Causal attention of all heads to one latent, as engines run it in a prefill."""
    metrics = row["metrics"]
    heads, query, value = metrics["heads"], metrics["qk_latent_dim"], metrics["v_latent_dim"]
    for sequence, time, *_ in metrics["series"]:
        tokens = metrics["batch"] * sequence
        flop = float(heads * tokens * sequence * (query + value))
        moved = ELEMENT * tokens * (heads * (query + value) + query)
        work = Work(flop, moved + SINGLE * tokens * heads, 1, width=(query + value) / 2)
        shape = f"{heads} heads, latent {query}, {sequence:,} tokens"
        yield Kernel(file, row["id"], shape, "attention", work, time * 1e-3)


def _fused_experts(file: str, row: Mapping[str, Any]) -> Iterator[Kernel]:
    """Experts of one rank as SGLang's and vLLM's Triton kernels run them where every rank has the
    tokens of all (`fused_moe_kernel`): its own rows are multiplied, and rows of experts elsewhere
    are zeros (`write_zeros_to_output`) that the activation, casts to FP8 and the sum over a token's
    experts move like any other. The first cast is of each token once."""
    metrics = row["metrics"]
    if "balanced" not in str(row["id"]):
        raise NotPriced("not told: how many rows of a skewed routing the timed rank has")
    experts, top, ranks = metrics["experts"], metrics["topk"], row["parallelism"]["ep"]
    hidden, width = metrics["hidden"], metrics["inter"]
    for tokens, time in metrics["series"]:
        rows, copies = tokens * top // ranks, tokens * top
        up = _product(Product(rows, 2 * width, hidden, experts // ranks, "fp8"))
        down = _product(Product(rows, hidden, width, experts // ranks, "fp8"))
        zeros = (copies - rows) * (2 * width + hidden) * ELEMENT
        halves = copies * width * (2 * ELEMENT + ELEMENT + ELEMENT + FP8)
        sums = (copies + tokens) * hidden * ELEMENT
        casts = tokens * hidden * (ELEMENT + FP8)
        yield Kernel(
            file,
            row["id"],
            f"{tokens:,} tokens over {ranks} ranks",
            "grouped_gemm",
            up,
            time * 1e-3,
            beside=(
                ("grouped_gemm", down),
                ("bandwidth", Work(0.0, float(zeros + halves + sums + casts), 4)),
            ),
        )


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
            continuous=metrics.get("load") == "continuous",
        )


def _product(product: Product) -> Work:
    """The work of a product whose result is bf16."""
    own, weight = (FP8, FP8_WEIGHT) if product.precision == "fp8" else (ELEMENT, ELEMENT)
    read = own * product.rows * product.k + weight * product.groups * product.k * (product.cols)
    moved = read + ELEMENT * product.rows * product.cols
    return Work(2.0 * product.rows * product.cols * product.k, moved, 1, product)


def _weight_gradients(file: str, row: Mapping[str, Any]) -> Iterator[Kernel]:
    """Gradients of weights m x n, summed over k rows of each group and added to an fp32 result."""
    metrics = row["metrics"]
    for values in metrics["series"]:
        entry = dict(zip(metrics["columns"], values, strict=True))
        groups, rows, cols = entry.get("groups", 1), entry["m"], entry["n"]
        inner = entry.get("k") or entry["k_per_group"]
        product = Product(rows, cols, inner * groups, groups, "fp8", weight=True)
        flop = 2.0 * rows * cols * product.k
        moved = FP8 * product.k * (rows + cols) + ACCUMULATE * groups * rows * cols
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


_READERS: Final[tuple[tuple[frozenset[str], _Reader], ...]] = (
    (frozenset({"inter"}), _fused_experts),
    (frozenset({"qk_latent_dim"}), _latent_attention),
    (frozenset({"config"}), _attention_rates),
    (frozenset({"series", "head_dim", "heads", "kv_heads", "seq"}), _attention),
)
"""Who reads rows with such metrics."""
PROFILE: Final = "h800-hopper-bf16"
SHAPE: Final = Shape(sequences=1, sequence=4096, expert=64, precision="fp8")
"""What ran, with balanced routing (profile-data, README)."""
RECOMPUTED: Final = ("norms", "swiglu", "mla_up")
"""What DeepSeek-V3 runs again (arXiv:2412.19437, section 3.2.3, and SwiGLU in 3.3.3)."""
ROWS: Final = {
    "grouped": "grouped-fp8-gemm",
    "weights, experts' up": "fp8-wgrad-accum-gemm-b",
    "weights, all others": "fp8-wgrad-accum-gemm-a",
    "dense": "fp8-dense-gemm",
    "attention, forward": "flash-attn-fwd-192-128",
    "attention, backward": "flash-attn-bwd-192-128",
    "casts": "fp8-cast",
}
"""Classes of kernels, with what their row is called behind `profile-data-train-`. Calls tell the
two kernels for weights apart: 16 are the four experts' up-projections of four layers."""


@dataclass(frozen=True, slots=True)
class TraceClass:
    """One class of kernels of the trace: seconds alone, beside DeepEP, and as measured."""

    name: str
    alone: float
    beside: float
    measured: float


def trace() -> tuple[TraceClass, ...]:
    """Every class of kernels of the trace."""
    gpu, profile = load_part("gpus", "h800").spec, load_part("calibrations", PROFILE).spec
    alone: defaultdict[str, float] = defaultdict(float)
    beside: defaultdict[str, float] = defaultdict(float)
    for name, op, work, backward in _runs():
        cost = price(op.kind, work, gpu, profile, backward)
        alone[name] += cost.seconds
        beside[name] += cost.seconds * _slower(cost.sm_bound, gpu, profile)
    measured = _measured()
    return tuple(
        TraceClass(name, alone[name], beside[name], measured[row]) for name, row in ROWS.items()
    )


def _slower(sm_bound: float, gpu: GpuSpec, profile: CalibrationSpec) -> float:
    """How many times as long a kernel takes beside DeepEP."""
    return slowdown(sm_bound, profile.expert_sms, gpu.sms, profile.contention)


def _runs() -> Iterator[tuple[str, Op, Work, bool]]:
    """Every kernel that has a row: its class, op and work, and whether it is backward."""
    model = load_part("models", "deepseek-v3-4moe-layers").spec
    for layer in (layer for layer in layers(model, SHAPE) if layer.kind == "moe"):
        repeated = again(layer, RECOMPUTED)
        for op in (item for item in layer.items if isinstance(item, Op)):
            runs = [(op.forward, False), (op.backward, True), (op.weight, True)]
            for work, backward in runs + runs[: op.name in repeated]:
                name = _class(op, work, backward=backward)
                if work.kernels and name in ROWS:
                    yield name, op, work, backward


def _class(op: Op, work: Work, *, backward: bool) -> str:
    """The class of a kernel; empty for those without a row."""
    product = work.product
    match op.kind:
        case "attention":
            return "attention, backward" if backward else "attention, forward"
        case "cast":
            return "casts" if op.name.endswith(("_cast", "_turn")) else ""
        case _ if product is None or product.precision == "bf16":
            return ""
        case _ if product.weight:
            return "weights, experts' up" if op.name == "experts_up" else "weights, all others"
        case "grouped_gemm":
            return "grouped"
        case _:
            return "dense"


def _measured() -> dict[str, float]:
    """Seconds of each row of the trace."""
    found: dict[str, float] = {}
    for file in ("trace-h800", "attention-h800"):
        path = shipped_folder() / "published" / f"{file}.yaml"
        for row in read_data(path)["measurements"]:
            name = row["id"].removeprefix("profile-data-train-")
            found[name] = row["metrics"]["total_ms"] * 1e-3
    return found
