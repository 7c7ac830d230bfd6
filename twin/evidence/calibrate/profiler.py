"""A PyTorch profiler trace (Chrome JSON, also .gz) to measured kernels.

A GPU's kernels carry the number of the operation that launched them, which has the shapes; all
kernels of one call count together. A trace of a CPU has no kernels: there an operation lasts as
long as it does, what it calls included, and any other one what its own callees leave. What is no
kernel of the twin is kept by name, with its seconds and the reason. Kernels of one shape are one
row: their median.

Source of the format: pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from twin.errors import Problem, UsageError
from twin.evidence.calibrate import torch_ops
from twin.evidence.calibrate.kernels import Kernel
from twin.evidence.calibrate.table import digest
from twin.evidence.calibrate.torch_ops import Meaning, UnknownError
from twin.loading.files import display

COMMUNICATION: Final = ("nccl", "c10d::", "gloo:", "mpi:", "ucc:")
"""How the names of collectives' kernels and operations begin."""
_KERNELS: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_NO_WORK: Final = frozenset({"user_annotation", "gpu_user_annotation", "python_function"})


@dataclass(frozen=True, slots=True)
class Other:
    """Time of a trace that no kernel of the twin stands for: what, why, calls and seconds."""

    name: str
    why: str
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Profiled:
    """A trace: the device in its own words (empty for a CPU), a row per kernel and shape with its
    calls, seconds of all its kernels, what is not mapped, and the SHA-256 of the file."""

    device: str
    kernels: tuple[Kernel, ...]
    calls: Mapping[str, int]
    seconds: float
    others: tuple[Other, ...]
    digest: str

    @property
    def share(self) -> float:
        """Of the seconds, the share that is mapped."""
        return 1 - sum(one.seconds for one in self.others) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class _Call:
    """One operation: its name, what was recorded of it, microseconds, and the gradient's sizes."""

    name: str
    arguments: Mapping[str, Any]
    start: float
    length: float
    inside: list[_Call] = field(default_factory=list["_Call"])
    gradient: Sequence[int] = ()


def read_trace(path: Path) -> Profiled:
    """The kernels of a trace. Raises `UsageError` where the file is none, or holds none."""
    document = _document(path)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X" and "dur" in e]
    devices: list[Mapping[str, Any]] = document.get("deviceProperties") or []
    device = str(devices[0].get("name", "")) if devices else ""
    roots = list(_nested(e for e in events if e.get("cat") == "cpu_op"))
    kernels = [e for e in events if e.get("cat") in _KERNELS]
    times = _of_gpu(kernels, roots) if kernels else _of_cpu(roots)
    return _gathered(times, device, path)


def _document(path: Path) -> Mapping[str, Any]:
    name = display(path)
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            document: Any = json.load(file)
    except (OSError, ValueError) as error:
        raise UsageError([Problem("TW350", "", f"`{name}` is no trace: {error}", _TRACE)]) from None
    if isinstance(document, list):
        return {"traceEvents": document}
    if not isinstance(document, dict) or "traceEvents" not in document:
        raise UsageError([Problem("TW350", "", f"`{name}` has no `traceEvents`", _TRACE)])
    return document  # pyright: ignore[reportUnknownVariableType]


_TRACE: Final = (
    "torch.profiler writes one with `export_chrome_trace`; profile with record_shapes=True"
)


def _nested(events: Iterable[Mapping[str, Any]]) -> Iterator[_Call]:
    """The outermost calls of each thread, with what they called."""
    threads: defaultdict[tuple[Any, Any], list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        threads[event.get("pid"), event.get("tid")].append(event)
    for own in threads.values():
        open_calls: list[_Call] = []
        for event in sorted(own, key=lambda e: (e["ts"], -e["dur"])):
            start, length = float(event["ts"]), float(event["dur"])
            while open_calls and start >= open_calls[-1].start + open_calls[-1].length:
                open_calls.pop()
            above = open_calls[-1] if open_calls else None
            arguments: Mapping[str, Any] = event.get("args") or {}
            name = str(event.get("name", ""))
            call = _Call(name, arguments, start, length, [], _gradient(name, arguments, above))
            if above is None:
                yield call
            else:
                above.inside.append(call)
            open_calls.append(call)


def _gradient(name: str, arguments: Mapping[str, Any], above: _Call | None) -> Sequence[int]:
    """Sizes of the gradient that a backward node works on, for what it calls."""
    if name.endswith("Backward0") and "::" not in name:
        dims = arguments.get("Input Dims") or [()]
        return dims[0]
    return above.gradient if above else ()


@dataclass(frozen=True, slots=True)
class _Time:
    """Seconds of one call, or of a name without one, and what it means, or why that is unknown."""

    name: str
    seconds: float
    meaning: Meaning | str


def _of_cpu(roots: Iterable[_Call]) -> Iterator[_Time]:
    """Every operation: a mapped one whole, any other one without what it calls."""
    stack = list(roots)
    while stack:
        call = stack.pop()
        communicates = call.name.startswith(COMMUNICATION)
        if communicates or torch_ops.mapped(call.name):
            yield _Time(call.name, call.length * 1e-6, _meaning(call))
            continue
        stack += call.inside
        own = call.length - sum(inner.length for inner in call.inside)
        if own > 0:
            yield _Time(call.name, own * 1e-6, "no class of the twin")


def _of_gpu(kernels: Iterable[Mapping[str, Any]], roots: Iterable[_Call]) -> Iterator[_Time]:
    """The kernels of each call together; those that no recorded call launched by their own name."""
    calls: dict[Any, _Call] = {}
    stack: list[tuple[_Call, _Call | None]] = [(root, None) for root in roots]
    while stack:
        call, above = stack.pop()
        owner = above or (call if torch_ops.mapped(call.name) else None)
        calls[call.arguments.get("External id")] = owner or call
        stack += [(inner, owner) for inner in call.inside]
    seconds: defaultdict[int, float] = defaultdict(float)
    owners: dict[int, _Call] = {}
    for kernel in kernels:
        arguments: Mapping[str, Any] = kernel.get("args") or {}
        name, own = str(kernel.get("name", "")), float(kernel["dur"]) * 1e-6
        call = calls.get(arguments.get("External id"))
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
        yield _Time(call.name, seconds[key], _meaning(call))


def _meaning(call: _Call) -> Meaning | str:
    if call.name.startswith(COMMUNICATION):
        return "communication"
    try:
        return torch_ops.meaning(call.name, torch_ops.inputs(call.arguments, call.gradient))
    except UnknownError as error:
        return str(error)


def _gathered(times: Iterable[_Time], device: str, path: Path) -> Profiled:
    rows: defaultdict[Meaning, list[float]] = defaultdict(list)
    rest: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    names: dict[Meaning, str] = {}
    for time in times:
        if isinstance(time.meaning, Meaning):
            rows[time.meaning].append(time.seconds)
            names.setdefault(time.meaning, time.name)
        else:
            rest[time.name, time.meaning].append(time.seconds)
    total = sum(map(sum, (*rows.values(), *rest.values())))
    if not rows:
        message = f"`{display(path)}` holds no kernel that the twin prices, with its shapes"
        raise UsageError([Problem("TW358", "", message, _TRACE)])
    kernels = tuple(
        Kernel(path.name, names[m], m.shape, m.op_class, m.work, median(own), m.backward)
        for m, own in rows.items()
    )
    others = [Other(name, why, len(own), sum(own)) for (name, why), own in rest.items()]
    others.sort(key=lambda one: (-one.seconds, one.name))
    calls = {m.shape: len(own) for m, own in rows.items()}
    return Profiled(device, kernels, calls, total, tuple(others), digest(path))
