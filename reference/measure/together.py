"""Kernels and an exchange between ranks at the same time: how long each takes while the other runs.

On a GPU the exchange has NCCL's own stream, and events tell when each ends. On a CPU it has gloo's
threads, and another thread waits for it. Ranks begin together, behind a barrier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final, Literal, Protocol

import torch
import torch.distributed as dist

from reference.measure import clock
from reference.measure.clock import Call, Timing

Begin = Callable[[], Any]
"""Begins an exchange, and returns what it is waited by."""
Timed = Literal["kernels", "exchange"]
BESIDE: Final = 20e-3
"""Seconds of a row."""
OUTLASTS: Final = 1.5
"""Times a row's own length that what runs beside it would take alone."""
MOST: Final = 200
"""Calls in a row: a queue of launches holds 1,024, and several kernels may be a call."""


class _Marks(Protocol):
    """When kernels and exchanges end, in seconds behind their beginning."""

    def run(self, calls: Sequence[Call], exchanges: Sequence[Begin]) -> tuple[float, float]:
        """Begins all exchanges, then the calls."""
        ...


class _OnGpu:
    def __init__(self, device: torch.device) -> None:
        self.device, self.side = device, torch.cuda.Stream(device)

    def run(self, calls: Sequence[Call], exchanges: Sequence[Begin]) -> tuple[float, float]:
        begin, called, exchanged = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        begin.record()
        works = [exchange() for exchange in exchanges]
        for call in calls:
            call()
        called.record()
        with torch.cuda.stream(self.side):
            self.side.wait_event(begin)
            for work in works:
                work.wait()
            exchanged.record()
        torch.cuda.synchronize(self.device)
        return begin.elapsed_time(called) * 1e-3, begin.elapsed_time(exchanged) * 1e-3


class _OnHost:
    def run(self, calls: Sequence[Call], exchanges: Sequence[Begin]) -> tuple[float, float]:
        ended: list[float] = []
        begun = time.perf_counter()
        works = [exchange() for exchange in exchanges]

        def wait() -> None:
            for work in works:
                work.wait()
            ended.append(time.perf_counter())

        waiting = Thread(target=wait)
        waiting.start()
        for call in calls:
            call()
        called = time.perf_counter()
        waiting.join()
        return called - begun, ended[0] - begun


@dataclass(frozen=True, slots=True)
class Pair:
    """A call of kernels and the beginning of an exchange."""

    call: Call
    exchange: Begin

    def measure(self, timed: Timed, samples: int, device: torch.device) -> Timing:
        """Seconds of one call, or of one exchange, while the other goes on for longer."""
        marks = _OnGpu(device) if device.type == "cuda" else _OnHost()
        alone = self._alone(marks, device)
        counts: dict[Timed, int] = {
            name: max(1, min(MOST, round(BESIDE / each))) for name, each in alone.items()
        }
        other: Timed = "exchange" if timed == "kernels" else "kernels"
        lasts = counts[timed] * alone[timed]
        counts[other] = max(1, min(MOST, round(OUTLASTS * lasts / alone[other])))
        seconds: list[float] = []
        while len(seconds) <= samples:
            called, exchanged = self._row(marks, counts, device)
            ended = {"kernels": called, "exchange": exchanged}
            # All ranks count alike, so that none waits for an exchange that another does not begin.
            if _most(float(ended[other] < ended[timed]), device) and 2 * counts[other] <= MOST:
                counts[other] *= 2
                continue
            seconds.append(_most(ended[timed], device) / counts[timed])
        return clock.summary(seconds[1:], counts[timed])

    def _alone(self, marks: _Marks, device: torch.device) -> dict[Timed, float]:
        """Seconds of each by itself, the slowest rank's."""
        once: list[tuple[Timed, dict[Timed, int]]] = [
            ("kernels", {"kernels": 1, "exchange": 0}),
            ("exchange", {"kernels": 0, "exchange": 1}),
        ]
        found: dict[Timed, float] = {}
        for name, counts in once:
            for _ in range(3):  # the last one counts: libraries are loaded, ranks connected
                called, exchanged = self._row(marks, counts, device)
            found[name] = max(1e-7, _most(called if name == "kernels" else exchanged, device))
        return found

    def _row(
        self, marks: _Marks, counts: dict[Timed, int], device: torch.device
    ) -> tuple[float, float]:
        dist.barrier()
        clock.finish(device)
        return marks.run([self.call] * counts["kernels"], [self.exchange] * counts["exchange"])


def _most(value: float, device: torch.device) -> float:
    """The largest of all ranks'."""
    held = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(held, op=dist.ReduceOp.MAX)
    return float(held)
