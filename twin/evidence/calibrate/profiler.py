"""A PyTorch profiler trace (Chrome JSON, also .gz) to measured kernels.

A GPU's kernels carry the number of the operation that launched them, which has the shapes; all
kernels of one call count together. A CPU's trace has no kernels: a mapped operation counts whole,
any other without its callees. Unmapped time is listed by name with its reason. Kernels of one shape
are one row, their median. Source of the format: pytorch/kineto, libkineto/src/output_json.cpp.

Only operations whose work follows from their inputs are mapped. GEMMs count in bf16 only (a profile
has no other 16-bit numbers; fp16 has the same rates). Attention counts causal scores by half, two
GEMMs forward and five backward (Dao et al. 2022). Elementwise kernels read their inputs once and
write one result as large as the largest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from twin.arch.kernels import ELEMENT, SINGLE
from twin.arch.ops import OpClass, Product, Work
from twin.errors import Problem, UsageError
from twin.evidence.calibrate.kernels import Kernel
from twin.evidence.calibrate.table import digest
from twin.evidence.traces.chrome import Chrome, Event, ShapedEvent, Shapes
from twin.evidence.traces.rank import GPU
from twin.loading.files import display, read_data

_OPERATIONS: Final = read_data(Path(__file__).with_name("operations.yaml"))["torch"]
BYTES: Final[Mapping[str, int]] = _OPERATIONS["bytes"]
"""Bytes of a number of each type that the profiler names."""
_CAUSAL: Final[Mapping[str, int]] = _OPERATIONS["causal"]
"""Fused attention, and which argument states whether it is causal."""
HALF: Final = frozenset({"c10::BFloat16", "c10::Half"})


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of one call: their sizes, types, and values where they are no tensors; the sizes
    of the gradient, inside a backward pass."""

    dims: Sequence[Sequence[int]]
    types: Sequence[str]
    values: Sequence[str]
    gradient: Sequence[int] = ()

    @property
    def tensors(self) -> list[tuple[Sequence[int], int]]:
        """Sizes and bytes per number of the inputs that are tensors."""
        pairs = zip(self.dims, self.types, strict=False)
        return [(dims, BYTES[kind]) for dims, kind in pairs if dims and kind in BYTES]


@dataclass(frozen=True, slots=True)
class MappedKernel:
    """A kernel of the twin: class, shape in words, work, and direction."""

    op_class: OpClass
    shape: str
    work: Work
    backward: bool = False


class UnknownError(ValueError):
    """A call whose work does not follow from what was recorded; the text says why."""


def meaning(name: str, inputs: Inputs) -> MappedKernel:
    """What a call did. Raises `UnknownError` where it is nothing that the twin prices, or where its
    shapes were not recorded."""
    bare = name.removeprefix("aten::")
    reader = _READERS.get(bare)
    if reader is None:
        raise UnknownError("no class of the twin")
    if not any(inputs.dims):
        raise UnknownError("no shapes: profile with record_shapes=True")
    try:
        return reader(bare, inputs)
    except (IndexError, ValueError) as error:
        if isinstance(error, UnknownError):
            raise
        raise UnknownError("shapes that are none of this operation") from None


def mapped(name: str) -> bool:
    """Whether an operation has a class, so that what it calls is part of it."""
    return name.removeprefix("aten::") in _READERS


def _half(inputs: Inputs, *which: int) -> None:
    kinds = {inputs.types[i] for i in which}
    if not kinds <= HALF:
        raise UnknownError(f"products of {', '.join(sorted(kinds))}: a profile has 16-bit ones")


def _product(name: str, inputs: Inputs) -> MappedKernel:
    first = 1 if name == "addmm" else 0
    _half(inputs, first, first + 1)
    (rows, inner), (other, cols) = inputs.dims[first], inputs.dims[first + 1]
    if inner != other or not rows * inner * cols:
        raise UnknownError("shapes that are none of this operation")
    gradient = list(inputs.gradient)
    # A backward pass holds two products: that for the weight sums over the gradient's rows.
    weight = len(gradient) == 2 and inner == gradient[0] and gradient[1] in (rows, cols)
    weight = weight and not (inner == gradient[1] and rows == gradient[0])
    product = Product(rows, cols, inner, 1, "bf16", weight)
    moved = ELEMENT * (rows * inner + inner * cols + rows * cols)
    return MappedKernel(
        "gemm",
        f"{rows:,} x {cols:,} x {inner:,}",
        Work(2.0 * rows * cols * inner, moved, 1, product),
        weight,
    )


def _grouped(name: str, inputs: Inputs) -> MappedKernel:
    """Rows in groups times a matrix each, or (two matrices) the gradient of those."""
    del name
    _half(inputs, 0, 1)
    left, right = inputs.dims[0], inputs.dims[1]
    if len(left) == 2 and len(right) == 3:
        (rows, inner), (groups, _, cols) = left, right
        product = Product(rows, cols, inner, groups)
        moved = ELEMENT * (rows * inner + groups * inner * cols + rows * cols)
    elif len(left) == 2 and len(right) == 2:
        (rows, inner), (_, cols), (groups,) = left, right, inputs.dims[2]
        product = Product(rows, cols, inner, groups, "bf16", weight=True)
        moved = ELEMENT * (inner * (rows + cols) + groups * rows * cols)
    else:
        raise UnknownError("a grouped product of another form")
    each = f"{groups} x {rows:,} x {cols:,} x {inner:,}"
    flop = 2.0 * rows * cols * inner
    return MappedKernel("grouped_gemm", each, Work(flop, moved, 1, product), product.weight)


def _attention(name: str, inputs: Inputs) -> MappedKernel:
    backward = name.endswith("_backward")
    first = 1 if backward else 0
    query, key, value = inputs.dims[first : first + 3]
    batch, heads, tokens, width = query
    key_heads, sources, value_width = key[1], key[2], value[3]
    place = _CAUSAL[name]
    said = inputs.values[place] if place < len(inputs.values) else ""
    causal = said != "False" and tokens > 1
    scores = batch * heads * tokens * sources * (0.5 if causal else 1.0)
    products = 3 * width + 2 * value_width if backward else width + value_width
    kept = (heads + key_heads) * (width + value_width) * batch * tokens
    moved = ELEMENT * kept * (2 if backward else 1) + SINGLE * batch * tokens * heads
    words = f"{heads} heads of {width} and {value_width}, {batch} x {tokens:,} tokens"
    work = Work(
        2.0 * scores * products, moved, 3 if backward else 1, width=(width + value_width) / 2
    )
    return MappedKernel("attention", words + ("" if causal else ", not causal"), work, backward)


def _elementwise(name: str, inputs: Inputs) -> MappedKernel:
    tensors = inputs.tensors
    if not tensors:
        raise UnknownError("no shapes: profile with record_shapes=True")
    read = sum(prod(dims) * size for dims, size in tensors)
    written = max(prod(dims) * size for dims, size in tensors)
    if name in ("copy_", "fill_", "zero_"):
        # The first input is the result: it is written, and not read.
        (dims, size), *others = tensors
        written = prod(dims) * size
        read = sum(prod(other) * its for other, its in others)
    words = ", ".join(" x ".join(f"{n:,}" for n in dims) for dims, _ in tensors)
    return MappedKernel("bandwidth", f"{name} of {words}", Work(0.0, float(read + written), 1))


Reader = Callable[[str, Inputs], MappedKernel]
_READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "mm": _product,
        "addmm": _product,
        "_grouped_mm": _grouped,
        **dict.fromkeys(_CAUSAL, _attention),
        **dict.fromkeys(_OPERATIONS["elementwise"], _elementwise),
    }
)


COMMUNICATION: Final = ("nccl", "c10d::", "gloo:", "mpi:", "ucc:")
"""How the names of collectives' kernels and operations begin."""


@dataclass(frozen=True, slots=True)
class UnmappedTime:
    """Time of a trace that no kernel of the twin stands for: what, why, calls and seconds."""

    name: str
    why: str
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Profiled:
    """A trace: the device in its own words (empty for a CPU), a row per kernel and shape with its
    calls, seconds of all its kernels, what is not mapped, the SHA-256 of the file, and whether
    only its beginning was kept."""

    device: str
    kernels: tuple[Kernel, ...]
    calls: Mapping[str, int]
    seconds: float
    others: tuple[UnmappedTime, ...]
    digest: str
    begun: bool = False

    @property
    def share(self) -> float:
        """Of the seconds, the share that is mapped."""
        return 1 - sum(one.seconds for one in self.others) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class _Call:
    """One operation: its name, what was recorded of it, microseconds, and the gradient's sizes."""

    name: str
    told: Shapes
    start: float
    length: float
    inside: list[_Call] = field(default_factory=list["_Call"])
    gradient: Sequence[int] = ()


def read_trace(path: Path) -> Profiled:
    """The kernels of a trace. Raises `UsageError` where the file is none, or holds none."""
    file = Chrome(path)
    until = _until(path)
    events = [
        event
        for event in file.events(ShapedEvent)
        if (event.cat == "cpu_op" or event.cat in GPU) and event.ts < until
    ]
    devices: list[Mapping[str, Any]] = file.head.get("deviceProperties") or []
    device = str(devices[0].get("name", "")) if devices else ""
    roots = list(_nested(e for e in events if e.cat == "cpu_op"))
    kernels = [e for e in events if e.cat in GPU]
    times = _of_gpu(kernels, roots) if kernels else _of_cpu(roots)
    return replace(_gathered(times, device, path), begun=until < inf)


SMALL: Final = 256_000_000
"""Bytes of a file up to which all of it is kept; packed ones count twenty times."""
MOST: Final = 500_000
"""Calls and kernels that are kept of a larger one: OURS, some 700 MB."""


def _until(path: Path) -> float:
    """When to stop, in the file's microseconds, so that a large trace is read in bounded memory:
    its beginning shows the same calls as the rest. What a call launches later is lost."""
    size = path.stat().st_size * (20 if path.suffix == ".gz" else 1)
    if size <= SMALL:
        return inf
    count, first, last = 0, inf, -inf
    for event in Chrome(path).events(Event):
        if event.cat == "cpu_op" or event.cat in GPU:
            count, first, last = count + 1, min(first, event.ts), max(last, event.ts)
    return first + (last - first) * MOST / count if count > MOST else inf


_TRACE: Final = (
    "profile with record_shapes=True; `twin measured` tells where the time of a trace went without"
)


def _nested(events: Iterable[ShapedEvent]) -> Iterator[_Call]:
    """The outermost calls of each thread, with what they called."""
    threads: defaultdict[tuple[int | str, int | str], list[ShapedEvent]] = defaultdict(list)
    for event in events:
        threads[event.pid, event.tid].append(event)
    for own in threads.values():
        open_calls: list[_Call] = []
        for event in sorted(own, key=lambda e: (e.ts, -e.dur)):
            start, length, name = event.ts, event.dur, event.name
            while open_calls and start >= open_calls[-1].start + open_calls[-1].length:
                open_calls.pop()
            above = open_calls[-1] if open_calls else None
            gradient = _gradient(name, event.args, above)
            call = _Call(name, event.args, start, length, [], gradient)
            if above is None:
                yield call
            else:
                above.inside.append(call)
            open_calls.append(call)


def _gradient(name: str, told: Shapes, above: _Call | None) -> Sequence[int]:
    """Sizes of the gradient that a backward node works on, for what it calls."""
    if name.endswith("Backward0") and "::" not in name:
        return told.dims[0] if told.dims else ()
    return above.gradient if above else ()


@dataclass(frozen=True, slots=True)
class _Time:
    """Seconds of one call, or of a name without one, and what it means, or why that is unknown."""

    name: str
    seconds: float
    meaning: MappedKernel | str


def _of_cpu(roots: Iterable[_Call]) -> Iterator[_Time]:
    """Every operation: a mapped one whole, any other one without what it calls."""
    stack = list(roots)
    while stack:
        call = stack.pop()
        communicates = call.name.startswith(COMMUNICATION)
        if communicates or mapped(call.name):
            yield _Time(call.name, call.length * 1e-6, _meaning_of(call))
            continue
        stack += call.inside
        own = call.length - sum(inner.length for inner in call.inside)
        if own > 0:
            yield _Time(call.name, own * 1e-6, "no class of the twin")


def _of_gpu(kernels: Iterable[ShapedEvent], roots: Iterable[_Call]) -> Iterator[_Time]:
    """The kernels of each call together; those that no recorded call launched by their own name."""
    calls: dict[Any, _Call] = {}
    stack: list[tuple[_Call, _Call | None]] = [(root, None) for root in roots]
    while stack:
        call, above = stack.pop()
        owner = above or (call if mapped(call.name) else None)
        calls[call.told.call] = owner or call
        stack += [(inner, owner) for inner in call.inside]
    seconds: defaultdict[int, float] = defaultdict(float)
    owners: dict[int, _Call] = {}
    for kernel in kernels:
        name, own = kernel.name, kernel.dur * 1e-6
        call = calls.get(kernel.args.call)
        if call is None or name.startswith(COMMUNICATION):
            why = (
                "communication"
                if name.startswith(COMMUNICATION)
                else "launched by no recorded call"
            )
            yield _Time(name, own, why)
            continue
        owners[id(call)] = call
        seconds[id(call)] += own
    for key, call in owners.items():
        yield _Time(call.name, seconds[key], _meaning_of(call))


def _meaning_of(call: _Call) -> MappedKernel | str:
    if call.name.startswith(COMMUNICATION):
        return "communication"
    try:
        told = call.told
        return meaning(call.name, Inputs(told.dims, told.types, told.values, call.gradient))
    except UnknownError as error:
        return str(error)


def _gathered(times: Iterable[_Time], device: str, path: Path) -> Profiled:
    rows: defaultdict[MappedKernel, list[float]] = defaultdict(list)
    rest: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    names: dict[MappedKernel, str] = {}
    for time in times:
        if isinstance(time.meaning, MappedKernel):
            rows[time.meaning].append(time.seconds)
            names.setdefault(time.meaning, time.name)
        else:
            rest[time.name, time.meaning].append(time.seconds)
    total = sum(map(sum, (*rows.values(), *rest.values())))
    if not rows:
        message = f"`{display(path)}` holds no kernel that the twin prices, with its shapes"
        raise UsageError([Problem("TW358", "", message, _TRACE)])
    kernels = tuple(
        Kernel(
            path.name,
            names[m],
            m.shape,
            m.op_class,
            m.work,
            median(own),
            m.backward,
            continuous=True,
        )
        for m, own in rows.items()
    )
    others = [UnmappedTime(name, why, len(own), sum(own)) for (name, why), own in rest.items()]
    others.sort(key=lambda one: (-one.seconds, one.name))
    calls = {m.shape: len(own) for m, own in rows.items()}
    return Profiled(device, kernels, calls, total, tuple(others), digest(path))
