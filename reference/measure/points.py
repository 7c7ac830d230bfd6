"""Measured operations: what each did and how long it took, and the folder that keeps them.

A folder holds `points/GROUP.jsonl`: a line about the machine, then a line per point, written as
soon as the group has ended. Groups measured before, on the same machine, stay.

What is to be timed: an operation of one shape, and how to make it run on the device at hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import torch

from reference.machine import Machine
from reference.measure import clock
from reference.measure.clock import Call, Effort, Statistic, Timing
from twin.errors import Problem, UsageError
from twin.spec.model import ModelSpec

CACHES: Final = 4
"""How many times the cache sets of inputs are together."""
SAME = ("name", "device", "software")
"""What must agree for two groups to be of one machine."""


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One operation of one shape: FLOP of its matrix products, bytes that it must move (each input
    read once, each output written once), and how many kernels the twin counts it as."""

    group: str
    op: str
    shape: Mapping[str, int]
    dtype: str
    flop: float
    bytes: float
    kernels: int
    timing: Timing

    def text(self) -> str:
        """The point as one line of JSON, its seconds in six digits."""
        fields = asdict(self) | {"shape": dict(self.shape)}
        fields["timing"] = {
            name: float(f"{value:.6g}") if isinstance(value, float) else value
            for name, value in fields["timing"].items()
        }
        return json.dumps(fields)

    def rate(self, statistic: Statistic) -> float:
        """FLOP per second."""
        return self.flop / self.timing.seconds(statistic)


def open_folder(folder: Path, machine: Machine) -> None:
    """Makes the folder. Raises `UsageError` where it cannot, or where it holds another machine's
    points."""
    try:
        (folder / "points").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"`{folder}` cannot be written: {error.strerror}"
        raise _refused("TW262", message, "name another folder with --output") from error
    own = machine.as_dict()
    for path in _files(folder):
        other = _head(path)
        for key in SAME:
            if other.get(key) != own[key]:
                message = f"`{path}` is of another machine: {key} `{other.get(key)}`, not "
                message += f"`{own[key]}`"
                fix = "name another folder with --output, or a --name"
                raise _refused("TW262", message, fix)


def write_group(
    folder: Path,
    group: str,
    machine: Machine,
    states: Mapping[str, Mapping[str, Any]],
    found: tuple[Iterable[MeasuredPoint], Iterable[object]],
) -> None:
    """One file: a line about the machine, its state before and after, and what was skipped; then a
    line per point."""
    points, skips = found
    head = {"machine": machine.as_dict(), **states, "skipped": [str(skip) for skip in skips]}
    lines = [json.dumps(head), *(point.text() for point in points)]
    path = folder / "points" / f"{group}.jsonl"
    new = path.with_suffix(".tmp")
    new.write_text("\n".join(lines) + "\n", encoding="utf-8")
    new.replace(path)


def read_points(folder: Path) -> list[MeasuredPoint]:
    """Every point in the folder. Raises `UsageError` for a line that is none."""
    points: list[MeasuredPoint] = []
    for path in _files(folder):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[1:], 2):
            try:
                fields = json.loads(line)
                timing = Timing(**fields["timing"])
                points.append(MeasuredPoint(**{**fields, "timing": timing}))
            except (ValueError, KeyError, TypeError) as error:
                raise _unreadable(path, number) from error
    return points


def _files(folder: Path) -> Sequence[Path]:
    return sorted((folder / "points").glob("*.jsonl"))


def _head(path: Path) -> Mapping[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8").splitlines()[0])["machine"]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise _unreadable(path, 1) from error


def _unreadable(path: Path, line: int) -> UsageError:
    message = f"line {line} of `{path}` is not a measured point"
    return _refused("TW263", message, "remove the file, and measure its group again")


def _refused(code: str, message: str, fix: str) -> UsageError:
    return UsageError([Problem(code, "--output", message, fix)])


STACK: Final = "reference-cpu"
"""The catalog's software whose items a CPU takes."""
ITEM: Final = "item:"
"""Before the name of an item, in the operation of its point."""
MESSAGE: Final = "message"
"""The operation of a message's processor time."""
EXCHANGE: Final = "exchange_start"
"""The operation of an exchange between ranks that come from computing."""
BF16 = "bf16"
TYPES: Mapping[str, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}
"""Numbers that products are timed in; the twin's profile is of bf16."""
WIDTH: Mapping[str, int] = {"bf16": 2, "fp32": 4}
"""Bytes of each."""


T = TypeVar("T")
Make = Callable[[torch.device], Call]
"""Prepares a call with fresh inputs on a device."""


class BySetting(NamedTuple, Generic[T]):
    """A choice for a quick look, for a GPU and for a CPU."""

    quick: T
    cuda: T
    cpu: T


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how hard to measure. `most_flop` and `most_bytes` bound a single call, `ranks` are
    the processes that collectives run over."""

    device: torch.device
    model: str
    spec: ModelSpec
    dtypes: tuple[str, ...]
    effort: Effort
    quick: bool
    most_flop: float
    most_bytes: float
    cache: int
    """Bytes of inputs that one set must exceed before calls cycle through no further one."""
    ranks: int = 2
    keep: bool = False
    """Cases run again and again: inputs stay from run to run."""

    @property
    def cuda(self) -> bool:
        """Whether the device is an NVIDIA or AMD GPU."""
        return self.device.type == "cuda"

    def of(self, choices: BySetting[T]) -> T:
        """The choice for this setting."""
        return choices.quick if self.quick else choices.cuda if self.cuda else choices.cpu


@dataclass(frozen=True, slots=True)
class TimedCase:
    """One operation of one shape with its FLOP, bytes and kernels (`Point` has the conventions);
    `run` times it."""

    op: str
    shape: Mapping[str, int]
    dtype: str
    flop: float
    bytes: float
    kernels: int
    run: Callable[[Setting], Timing]

    def measured(self, group: str, setting: Setting) -> MeasuredPoint:
        """The point that comes of it."""
        work = self.dtype, self.flop, self.bytes, self.kernels
        return MeasuredPoint(group, self.op, dict(self.shape), *work, self.run(setting))

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {value:,}" for name, value in self.shape.items())
        return f"{self.op} {self.dtype} ({sizes})"


@dataclass(frozen=True, slots=True)
class Skip:
    """What was not measured, and why."""

    group: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"skipped {self.group}: {self.what}: {self.why}"


def timed(make: Make, size: float, *, cold: bool = False) -> Callable[[Setting], Timing]:
    """Times what `make` prepares with fresh inputs of `size` bytes; on a GPU several sets, so that
    together they exceed its cache. `cold`: on a CPU as well."""
    kept: list[Call] = []

    def run(setting: Setting) -> Timing:
        if kept:
            return clock.measure(kept, setting.device, setting.effort)
        sets = min(8, ceil(setting.cache / max(size, 1))) if setting.cache else 1
        if cold and setting.device.type == "cpu" and not setting.quick:
            sets = ceil(CACHES * clock.last_level_cache() / size)
        calls = [make(setting.device) for _ in range(max(1, sets))]
        if setting.keep:
            kept[:] = calls
        return clock.measure(calls, setting.device, setting.effort)

    return run


def random(device: torch.device, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Normal random numbers: on zeros a GPU draws less power and runs faster than it ever will."""
    return torch.randn(shape, device=device, dtype=dtype)


def bf16(device: torch.device, *shape: int) -> torch.Tensor:
    """The same in bf16."""
    return random(device, torch.bfloat16, *shape)


def gradient(out: torch.Tensor, *inputs: torch.Tensor) -> Call:
    """A backward pass to some inputs."""
    dout = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)


def of_reach(cases: list[TimedCase], group: str, setting: Setting) -> list[TimedCase | Skip]:
    """The cases that the bounds of the setting admit, and in one word what they leave out."""
    flop, size = setting.most_flop, setting.most_bytes
    kept = [case for case in cases if case.flop <= flop and case.bytes <= size]
    if len(kept) == len(cases):
        return [*kept]
    beyond = f"{len(cases) - len(kept)} of {len(cases)} shapes"
    why = f"beyond {flop:.1e} FLOP or {size:.1e} bytes per call"
    return [*kept, Skip(group, beyond, why)]
