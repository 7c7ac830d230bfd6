"""A device on paper, for `reference.streams.KINDS`: CPU tensors stand for those of a GPU, and
whatever is used before its time is found, though everything runs at once here.

Every stream and every thread of the host is a line of work with a vector clock: how far each other
line had come at least (Lamport 1978; Fidge 1988). Work starts behind what its stream was given,
what its stream waited for, and what the host had waited for when it gave the work. Each read and
write of a storage notes its line and the line's count; two that overlap, of which one writes, must
be in order. New memory counts as written by the stream that made it, since work of that stream may
still use what was there before. When a storage dies its own stream, those that were told with
`keep`, or the host must be behind every use: torch's allocator hands it out again then.

- Operators are seen by a `TorchDispatchMode` on every thread that starts.
- Tensors that `host` made are the host's; all others the device's. An operator on the host's alone
  is work of its thread; a blocking copy, `.item()`, `.tolist()`, `.numpy()` and `torch.equal` make
  the host wait.
- A transfer of torch.distributed is a line of its own, as on NCCL: it begins behind the current
  stream, and whoever calls `wait` makes the current stream wait, not the host. Its tensors live
  until then.
- Threads pass on what they have waited for by a future, by starting, and by what `passes` wraps.

Left out: several devices, what NumPy or a process group's own methods do with memory, the strides
of a tensor within its range.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from threading import RLock, Thread, local
from typing import Any, Literal
from weakref import finalize

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from reference.streams import KINDS, HostStreams

Clock = dict[int, int]
_ROOT = str(Path(__file__).parents[2])
_WAITS = {"aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::is_nonzero"}
"""Operators whose answer the host needs."""
_FILLED = {"tensors", "output", "output_tensor", "output_tensors"}
"""What transfers call the tensors that they write; torch's schemas do not say it."""


def _join(into: Clock, other: Clock) -> None:
    for line, ticks in other.items():
        if into.get(line, 0) < ticks:
            into[line] = ticks


@dataclass(slots=True)
class Moment:
    """An event."""

    clock: Clock
    paper: Paper

    def synchronize(self) -> None:
        _join(self.paper.thread.clock, self.clock)


class Line:
    """A stream, a thread of the host, or a transfer between ranks."""

    _numbers = count(1)

    def __init__(self, paper: Paper, name: str) -> None:
        self.paper, self.name = paper, name
        self.number = next(self._numbers)
        self.clock: Clock = {self.number: 0}

    def work(self) -> int:
        """Something more; its count."""
        self.clock[self.number] += 1
        return self.clock[self.number]

    def record_event(self) -> Moment:
        return Moment(dict(self.clock), self.paper)

    def wait_event(self, event: Moment) -> None:
        _join(self.clock, event.clock)

    def wait_stream(self, stream: Line) -> None:
        _join(self.clock, stream.clock)

    def synchronize(self) -> None:
        _join(self.paper.thread.clock, self.clock)


@dataclass(frozen=True, slots=True)
class Use:
    """A read or a write."""

    line: Line
    tick: int
    writes: bool
    first: int
    end: int
    name: str
    where: str

    def __str__(self) -> str:
        verb = "writes" if self.writes else "reads"
        return f"{self.name} {verb} it on {self.line.name} ({self.where})"


@dataclass(slots=True)
class Memory:
    """A storage."""

    line: Line
    """Which made it."""
    host: bool
    where: str
    uses: list[Use] = field(default_factory=list[Use])
    last: dict[int, Use] = field(default_factory=dict[int, Use])
    """The last use of each line."""
    kept: dict[int, Line] = field(default_factory=dict[int, Line])


class _Here(local):
    """The state of one thread."""

    stack: list[Line]
    thread: Line | None = None
    inside: bool = False


class Paper(HostStreams):
    """The device, and what was found: `found` says for each pair of uses what is missing."""

    def __init__(self, backend: Literal["gloo", "nccl"] = "nccl") -> None:
        """`backend`: how the product has transfers made; gloo makes them all."""
        self.backend = backend
        self.found: list[str] = []
        self.uses = 0
        self._here = _Here()
        self._lock = RLock()
        self._names = count(1)
        self._main = Line(self, "the main stream")
        self._memory: dict[int, Memory] = {}
        self._open: dict[int, tuple[Any, Line, Any]] = {}
        """Transfers that nobody has waited for, by work."""

    @property
    def thread(self) -> Line:
        """The host's thread."""
        if self._here.thread is None:
            self._here.thread, self._here.stack = Line(self, "the host"), [self._main]
        return self._here.thread

    @property
    def stream(self) -> Line:
        """The current stream, with what the host knows by now."""
        thread, stream = self.thread, self._here.stack[-1]
        _join(stream.clock, thread.clock)
        return stream

    def new(self, device: torch.device) -> Line:  # noqa: ARG002  there is one
        return Line(self, f"stream {next(self._names)}")

    def current(self, device: torch.device) -> Line:  # noqa: ARG002  there is one
        return self.stream

    @contextmanager
    def on(self, stream: Line) -> Iterator[None]:
        assert self.thread
        self._here.stack.append(stream)
        try:
            yield
        finally:
            self._here.stack.pop()

    def keep(self, tensor: Tensor, stream: Line) -> None:
        memory = self._memory_of(tensor)
        memory.kept[stream.number] = stream

    def copy(self, into: Tensor, source: Tensor) -> None:
        into.copy_(source, non_blocking=True)

    def host(self, shape: torch.Size, dtype: torch.dtype, place: str) -> Tensor:
        made = torch.empty(shape, dtype=dtype, device=place)
        with self._lock:
            self._memory.pop(_key(made), None)
            self._memory_of(made, host=True)
        return made

    def from_device(self, tensor: Tensor) -> Tensor:
        there = self.host(tensor.shape, tensor.dtype, "cpu")
        return there.copy_(tensor)

    def for_device(self, tensor: Tensor) -> Tensor:
        return self.host(tensor.shape, tensor.dtype, "cpu")

    def passes(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, on a thread that knows what this one does, whenever it runs."""
        known = dict(self.thread.clock)

        def run(*args: Any, **kwargs: Any) -> Any:
            _join(self.thread.clock, known)
            return call(*args, **kwargs)

        return run

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, and note what it uses."""
        if self._here.inside:
            return func(*args, **kwargs)
        with self.inside():
            out = func(*args, **kwargs)
            with self._lock:
                self._note(func, args, kwargs, out)
            return out

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Within, operators are parts of one that is seen, or of a transfer."""
        self._here.inside = True
        try:
            yield
        finally:
            self._here.inside = False

    def look(self, tensor: Tensor, name: str) -> None:
        """The host needs the numbers."""
        with self._lock:
            memory = self._memory_of(tensor)
            line = self.thread if memory.host else self.stream
            self._use(memory, Use(line, line.work(), False, *_range(tensor), name, _where()))
            line.synchronize()

    def waited(self, work: Any) -> None:
        """The current stream waits for a transfer."""
        with self._lock:
            _, line, _ = self._open.pop(id(work), (None, None, None))
            if line is not None:
                self.stream.wait_stream(line)

    def _note(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        writes, names, views = _schema(func)
        if views:
            return
        name = func._schema.name
        used: list[tuple[Tensor, bool]] = []
        if not name.endswith("_like") and not name.startswith("aten::new_"):
            used = [(one, n in writes) for n, arg in enumerate(args) for one in _tensors(arg)]
            used += [(one, key in names) for key, arg in kwargs.items() for one in _tensors(arg)]
        made = [one for one in _tensors(out) if _key(one) not in self._memory]
        memories = [self._memory_of(one) for one, _ in used]
        line, blocks = self._line(name, args, kwargs, memories)
        tick, where = line.work(), _where()
        for (tensor, write), memory in zip(used, memories, strict=True):
            self._use(memory, Use(line, tick, write, *_range(tensor), name, where))
            if memory.host and line is not self.thread:
                memory.kept[line.number] = line  # as torch's allocator of pinned memory
        for one in made:
            self._memory_of(one, name, line=line, host=line is self.thread)
        if name.startswith("c10d::"):
            for one in tree_leaves(out):
                if isinstance(one, torch.ScriptObject):
                    work = dist.Work.unbox(one)
                    self._open[id(work)] = work, line, args
        elif blocks:
            line.synchronize()

    def _line(self, name: str, args: Any, kwargs: Any, memories: list[Memory]) -> tuple[Line, bool]:
        """What an operator is work of, and whether the host waits for it."""
        stream = self.stream
        if name.startswith("c10d::"):
            line = Line(self, f"a transfer, {name.removeprefix('c10d::')}")
            line.wait_stream(stream)
            return line, False
        hosts = {memory.host for memory in memories}
        moves = kwargs.get("device") is not None
        if hosts == {True} and not moves:
            return self.thread, False
        later = name == "aten::copy_" and (kwargs.get("non_blocking") or args[2:] == (True,))
        return stream, (True in hosts and not later) or name in _WAITS

    def _memory_of(
        self, tensor: Tensor, name: str = "", *, line: Line | None = None, host: bool = False
    ) -> Memory:
        """What is known of a storage; it is new where that is nothing."""
        place = _key(tensor)
        found = self._memory.get(place)
        if found is None:
            line = line or (self.thread if host else self.stream)
            where = _where()
            found = self._memory[place] = Memory(line, host, where)
            end = finalize(tensor.untyped_storage(), self._freed, place, found)
            end.atexit = False
            whole = tensor.untyped_storage().nbytes()
            name = "what had the memory before" if "empty" in name or not name else name
            made = Use(line, line.work(), True, 0, whole, name, where)
            found.uses, found.last = [made], {line.number: made}
        return found

    def _use(self, memory: Memory, use: Use) -> None:
        self.uses += 1
        left: list[Use] = []
        for old in memory.uses:
            ordered = use.line.clock.get(old.line.number, 0) >= old.tick
            meets = old.first < use.end and use.first < old.end
            if meets and not ordered and (use.writes or old.writes):
                self._say(f"{use}, but nothing waits until {old}")
            covered = use.first <= old.first and old.end <= use.end
            if not (ordered and covered and (use.writes or not old.writes)):
                left.append(old)
        memory.uses = [*left, use]
        memory.last[use.line.number] = use

    def _freed(self, place: int, memory: Memory) -> None:
        with self._lock:
            if self._memory.get(place) is memory:
                del self._memory[place]
            known = dict(self.thread.clock)
            if not memory.host:
                _join(known, memory.line.clock)
            for line in memory.kept.values():
                _join(known, line.clock)
            for use in memory.last.values():
                if known.get(use.line.number, 0) < use.tick and use.line.name != "the host":
                    self._say(
                        f"memory made on {memory.line.name} ({memory.where}) is used again "
                        f"too early ({_where()}): {use}, and nobody keeps it"
                    )

    def _say(self, text: str) -> None:
        if text not in self.found:
            self.found.append(text)


class _Watch(TorchDispatchMode):
    """Shows every operator of a thread to a device on paper."""

    def __init__(self, paper: Paper) -> None:
        super().__init__()
        self._paper = paper


def _seen(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    del types
    return mode._paper.see(func, args, kwargs or {})


# Not in the class, whose wrapper would load torch's compiler, for a second.
_Watch.__torch_dispatch__ = _seen  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def on_paper(backend: Literal["gloo", "nccl"] = "nccl") -> Iterator[Paper]:
    """Within, the CPU is a device on paper, for this thread and for those that start."""
    with pytest.MonkeyPatch.context() as patch:
        paper = Paper(backend)
        patch.setitem(KINDS, "cpu", paper)
        _threads(patch, paper)
        wait = dist.Work.wait

        def waited(work: Any, *args: Any) -> Any:
            with paper.inside():  # gloo copies there what it has summed
                out = wait(work, *args)
            paper.waited(work)
            return out

        patch.setattr(dist.Work, "wait", waited)
        for name in ("tolist", "numpy"):
            patch.setattr(Tensor, name, _looking(paper, name))
        with _Watch(paper):
            yield paper


def _looking(paper: Paper, name: str) -> Callable[..., Any]:
    call = getattr(Tensor, name)

    def look(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        paper.look(tensor, name)
        return call(tensor, *args, **kwargs)

    return look


def _threads(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    """Let threads be watched, and know what those knew that started them."""
    start, submit, result = Thread.start, ThreadPoolExecutor.submit, Future.result

    def started(thread: Thread) -> None:
        run = paper.passes(thread.run)

        def watched() -> None:
            with _Watch(paper):
                run()

        thread.run = watched
        start(thread)

    def submitted(pool: Any, call: Any, /, *args: Any, **kwargs: Any) -> Any:
        known: Clock = {}
        run = paper.passes(call)

        def done(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            finally:
                known.update(paper.thread.clock)

        future: Any = submit(pool, done, *args, **kwargs)
        future.known = known
        return future

    def resulted(future: Any, timeout: Any = None) -> Any:
        out = result(future, timeout)
        _join(paper.thread.clock, getattr(future, "known", {}))
        return out

    patch.setattr(Thread, "start", started)
    patch.setattr(ThreadPoolExecutor, "submit", submitted)
    patch.setattr(Future, "result", resulted)


@cache
def _schema(func: Any) -> tuple[frozenset[int], frozenset[str], bool]:
    """The places and the names of what an operator writes; whether it only looks another way at
    what it is given."""
    schema = func._schema
    written = [
        (place, one.name)
        for place, one in enumerate(schema.arguments)
        if one.alias_info is not None and one.alias_info.is_write
    ]
    if schema.name.startswith("c10d::") and schema.name != "c10d::send":
        places = enumerate(schema.arguments)
        written = [(n, one.name) for n, one in places if one.name in _FILLED]
    views = not written and any(one.alias_info is not None for one in schema.returns)
    views = views or schema.name in {"aten::set_", "aten::detach", "aten::_unsafe_view"}
    return frozenset(one for one, _ in written), frozenset(one for _, one in written), views


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in _tensors(part)]
    return []


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _range(tensor: Tensor) -> tuple[int, int]:
    """The bytes of its storage between its first and its last number."""
    if not tensor.numel():
        return 0, 0
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    first = int(tensor.storage_offset()) * tensor.element_size()
    return first, first + int(reach + 1) * tensor.element_size()


def _where() -> str:
    """The innermost two lines of ours that run."""
    frame, found = sys._getframe(1), list[str]()
    while frame is not None and len(found) < 2:
        name = frame.f_code.co_filename
        if name.startswith(_ROOT) and name != __file__ and "/.venv" not in name:
            place = f"{name[len(_ROOT) + 1 :]}:{frame.f_lineno}"
            found += [place] if place not in found else []
        frame = frame.f_back
    return " < ".join(found)
