"""How long a call takes: warm up, then samples until the median is known well enough or the time
is spent.

On a CPU a sample is a row of calls. With one thread its clock is the time that the process ran
(user and system): on a machine that others use, a process may wait three quarters of the time, and
rows longer than a time slice are then never seen undisturbed; the wall's least and median are kept
beside. With more threads it is the wall's. On a GPU a sample is a row
between two events, behind a kernel that sleeps until the host has enqueued them all: so the host's
own time is in none of it (`host_seconds` measures that). A row cycles through several sets of
inputs, more than the L2 holds, since in training operands come from memory. On a CPU there is one
set: what fits into its caches stays there, as it does between the kernels of a small model. States
of an optimizer do not, and have several (`points.timed`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch

Call = Callable[[], object]

NOTCH: Final = 1.57
"""Half of a 95 % interval of a median, in quartile distances over the root of the samples (McGill,
Tukey, Larsen 1978, Variations of Box Plots, The American Statistician 32(1))."""
ROW: Final = {"cpu": 2e-4, "cuda": 3e-4}
"""Seconds that a row should last: far above what reading the clock costs (1e-7 s; events 5e-7)."""
LONGEST: Final = {"cpu": 10_000, "cuda": 32}
"""Calls in a row. A GPU's queue holds 1,024 launches, and a call may be two dozen kernels."""
AHEAD: Final = 1e-4
"""Seconds of sleep beside twice what the host needs."""
ENQUEUED: Final = 0.1
"""Seconds of sleep at most: a call that waits for the GPU itself would ask for ever more, and is
then timed with its waits."""


Statistic = Literal["least", "median", "mean"]
"""Which of a point's seconds a fit takes. On a CPU that others use, the least is what the hardware
does and the median what the neighbours left of it; on a GPU of one's own they are close. The mean
is what adds up: the sum of many calls, disturbed ones among them."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call over repeated samples: least, quartiles, most, mean; how many samples,
    and calls in each; samples above the upper quartile by more than 1.5 times the quartiles'
    distance (Tukey 1977, Exploratory Data Analysis). On a CPU also the wall's least and median: the
    seconds are the process's own there (`reference.measure.clock`)."""

    least: float
    lower: float
    median: float
    upper: float
    most: float
    samples: int
    calls: int
    outliers: int
    wall_least: float | None = None
    wall_median: float | None = None
    mean: float | None = None

    def seconds(self, statistic: Statistic) -> float:
        """Seconds of one call."""
        if statistic == "mean":
            return self.median if self.mean is None else self.mean
        return self.least if statistic == "least" else self.median

    def scaled(self, pace: float) -> Timing:
        """The same on a machine that takes so many times as long."""
        seconds = {
            name: value * pace for name, value in asdict(self).items() if isinstance(value, float)
        }
        return replace(self, **seconds)


@dataclass(frozen=True, slots=True)
class Effort:
    """When to stop: seconds of one case, samples at least, and the half-width of the median's
    interval that is tight enough, as a share of it."""

    seconds: float
    samples: int = 5
    tight: float = 0.01


def measure(
    calls: Sequence[Call], device: torch.device, effort: Effort, *, with_host: bool = False
) -> Timing:
    """Seconds of one call. All `calls` do the same, on different inputs. `with_host`: until a GPU
    has nothing left to do, the host's time included, as a training step lasts."""
    with _no_collection():
        first, host = _warm(calls, device)
        fit = min(LONGEST[device.type], round(ROW[device.type] / max(first, 1e-9)))
        count = max(len(calls), fit)
        row = [calls[i % len(calls)] for i in range(count)]
        if device.type == "cuda" and not with_host:
            watch = _events(device, 2 * host * count + AHEAD)
        else:
            watch = _clocks(device)
        walls: list[float] = []
        owns: list[float] = []
        start = time.perf_counter()
        while True:
            wall, own = watch(row)
            walls.append(wall / count)
            owns.append(own / count)
            spent = time.perf_counter() - start > effort.seconds
            if len(owns) >= effort.samples and (spent or _notch(owns) < effort.tight):
                return summary(owns, count, walls if device.type == "cpu" else None)


OUTLASTS: Final = 3.0
"""Times a row's own length that what runs beside it would take alone."""
BESIDE: Final = 5e-3
"""Seconds of a row beside another stream: many calls of both, and fewer launches than a queue."""
QUEUED: Final = 300
"""Calls in a stream at most: its queue holds 1,024 launches."""


def beside(call: Call, other: Call, device: torch.device, effort: Effort) -> Timing:
    """Seconds of one call on a GPU while another stream repeats `other` without pause. Both streams
    wait until the host has enqueued them."""
    alone = [measure([each], device, effort).median for each in (call, other)]
    count = max(1, min(QUEUED, round(BESIDE / alone[0])))
    further = max(1, min(QUEUED, round(OUTLASTS * count * alone[0] / alone[1])))
    streams = torch.cuda.Stream(device), torch.cuda.Stream(device)
    seconds: list[float] = []
    start, ahead = time.perf_counter(), 2e-3
    while True:
        gate, begin, end, done = (torch.cuda.Event(enable_timing=True) for _ in range(4))
        with torch.cuda.stream(streams[0]):
            _sleep(ahead)
            gate.record()
        began = time.perf_counter()
        with torch.cuda.stream(streams[1]):
            streams[1].wait_event(gate)
            for _ in range(further):
                other()
            done.record()
        with torch.cuda.stream(streams[0]):
            begin.record()
            for _ in range(count):
                call()
            end.record()
        host = time.perf_counter() - began
        torch.cuda.synchronize(device)
        if host > ahead < ENQUEUED:
            ahead = min(ENQUEUED, 1.5 * host)
            continue
        if begin.elapsed_time(done) < begin.elapsed_time(end) and further < QUEUED:
            further = min(QUEUED, 2 * further)
            continue
        seconds.append(begin.elapsed_time(end) * 1e-3 / count)
        if len(seconds) > effort.samples and time.perf_counter() - start > effort.seconds:
            return summary(seconds[1:], count)


def sustained(call: Call, device: torch.device, seconds: float) -> Timing:
    """Seconds of one call that a GPU repeats without pause, behind the first quarter of the time;
    the least is that of the whole time. The host stays two rows ahead."""
    start = time.perf_counter()
    call()
    finish(device)
    count = max(1, round(0.1 / max(time.perf_counter() - start, 1e-3)))
    marks: list[torch.cuda.Event] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(marks) < 8:
        for _ in range(count):
            call()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) > 2:
            marks[-3].synchronize()
    finish(device)
    rows = [one.elapsed_time(two) * 1e-3 / count for one, two in pairwise(marks)]
    return replace(summary(rows[len(rows) // 4 :], count), least=min(rows))


def host_seconds(call: Call, device: torch.device, effort: Effort) -> Timing:
    """Seconds of the host alone until one call is enqueued; on a CPU, those of the call."""
    if device.type == "cpu":
        return measure([call], device, effort)
    _warm([call], device)
    seconds: list[float] = []
    start = time.perf_counter()
    while len(seconds) < effort.samples or time.perf_counter() - start < effort.seconds:
        _sleep(2e-3)  # the queue must not run dry, nor fill up
        began = time.perf_counter()
        for _ in range(LONGEST["cuda"]):
            call()
        seconds.append((time.perf_counter() - began) / LONGEST["cuda"])
        torch.cuda.synchronize(device)
    return summary(seconds, LONGEST["cuda"])


def summary(seconds: Sequence[float], count: int, walls: Sequence[float] | None = None) -> Timing:
    """The quartiles of samples of rows of `count` calls each; `walls` are those of the wall's clock
    where `seconds` are of another."""
    lower, median, upper = (float(v) for v in np.quantile(seconds, (0.25, 0.5, 0.75)))
    fence = upper + 1.5 * (upper - lower)
    outliers = sum(value > fence for value in seconds)
    ends = min(seconds), lower, median, upper, max(seconds)
    wall = (min(walls), float(np.median(walls))) if walls else (None, None)
    return Timing(*ends, len(seconds), count, outliers, *wall, float(np.mean(seconds)))


def _notch(seconds: Sequence[float]) -> float:
    lower, median, upper = np.quantile(seconds, (0.25, 0.5, 0.75))
    return float(NOTCH * (upper - lower) / len(seconds) ** 0.5 / median)


def _warm(calls: Sequence[Call], device: torch.device) -> tuple[float, float]:
    """Seconds of the last of a few calls, and the host's part: libraries are loaded, caches
    filled."""
    seconds = host = 0.0
    for call in (*calls, calls[0], calls[0]):
        start = time.perf_counter()
        call()
        host = time.perf_counter() - start
        finish(device)
        seconds = time.perf_counter() - start
    return seconds, host


Watch = Callable[[Sequence[Call]], tuple[float, float]]
"""Seconds of a row by the wall's clock, and by the one that counts."""


def _clocks(device: torch.device) -> Watch:
    """The host's clocks; the process's own where it has one thread and no GPU to wait for."""
    own = ticking(device)

    def watch(row: Sequence[Call]) -> tuple[float, float]:
        finish(device)
        wall, ran = time.perf_counter(), own()
        for call in row:
            call()
        finish(device)
        ran = own() - ran
        return time.perf_counter() - wall, ran

    return watch


def ticking(device: torch.device) -> Callable[[], float]:
    """The clock that counts of the host's: its process's own where it works alone."""
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter


def _events(device: torch.device, ahead: float) -> Watch:
    """Events on a GPU that sleeps first for as long as the host needs to enqueue a row, found anew
    where that was too short (or the GPU's clock rose)."""

    def watch(row: Sequence[Call]) -> tuple[float, float]:
        nonlocal ahead
        while True:
            before, begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
            before.record()
            _sleep(ahead)
            begin.record()
            start = time.perf_counter()
            for call in row:
                call()
            end.record()
            host = time.perf_counter() - start
            torch.cuda.synchronize(device)
            slept = before.elapsed_time(begin) * 1e-3
            if host < slept or ahead >= ENQUEUED:
                seconds = begin.elapsed_time(end) * 1e-3
                return seconds, seconds
            ahead = min(ENQUEUED, 1.5 * ahead * max(1.0, host / slept) + AHEAD)

    return watch


def wake(device: torch.device) -> None:
    """Half a second of products: an idle GPU's clock is a fifth of a busy one's."""
    if device.type != "cuda":
        return
    x = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    start = time.perf_counter()
    while time.perf_counter() - start < 0.5:
        torch.mm(x, x)
        torch.cuda.synchronize(device)


TRIAL: Final = 20_000_000
"""Cycles of the kernel that is timed to learn its pace, about 10 ms."""
_PACE: list[float] = []
"""Cycles per second of the sleeping kernel, once measured."""


def _sleep(seconds: float) -> None:
    """Enqueues a kernel that does nothing for so long."""
    if not _PACE:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(2):  # the first one also wakes the GPU
            begin.record()
            _spin(TRIAL)
            end.record()
            torch.cuda.synchronize()
        _PACE.append(TRIAL / (begin.elapsed_time(end) * 1e-3))
    _spin(int(seconds * _PACE[0]))


def _spin(cycles: int) -> None:
    # What torch's own tests of streams use; there is no public kernel that only waits.
    torch.cuda._sleep(cycles)  # noqa: SLF001


def finish(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's garbage collector, which would run inside of some sample."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def last_level_cache() -> int:
    """Bytes of the largest cache of this CPU, of which Linux tells; 32 MiB where it does not."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max(
        (int(size.read_text().strip().removesuffix("K")) << 10 for size in sizes), default=32 << 20
    )


def cache_bytes(device: torch.device) -> int:
    """Bytes of a GPU's L2; none on a CPU, whose caches are left as they are."""
    if device.type == "cpu":
        return 0
    return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 2**26))
