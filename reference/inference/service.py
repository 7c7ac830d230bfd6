"""An engine on a thread of its own that serves many others, and its metrics.

What touches the engine is done by its thread between two steps: other threads hand it over and
wait.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from queue import Empty, Queue
from threading import Condition, Thread
from typing import Any, Final, TypeVar

from torch import Tensor

from reference.inference.engine import Engine
from reference.inference.request import EngineRequest, Update

T = TypeVar("T")
_WINDOW: Final = 10.0
"""Seconds over which tokens per second are counted."""


class DrainingError(RuntimeError):
    """No request is taken any more."""


class EngineFailedError(RuntimeError):
    """A step failed; nothing is served any more."""


class UpdateStream:
    """The updates of one request as they come."""

    def __init__(self, request: EngineRequest) -> None:
        self.request = request
        self.number = -1
        self.updates: Queue[Update | None] = Queue()
        self._left = request.choices
        self.untold = request.choices
        """Choices whose end the engine has not told."""

    def read(self, gone: Callable[[], bool], every: float = 0.2) -> Iterator[Update]:
        """Updates until every choice has ended; ends early where `gone`, asked at each update and
        at least every so many seconds, says that nobody reads on. Raises EngineFailedError."""
        while self._left:
            if gone():
                return
            try:
                update = self.updates.get(timeout=every)
            except Empty:
                continue
            if update is None:
                raise EngineFailedError
            self._left -= update.finish is not None
            yield update

    @property
    def over(self) -> bool:
        """Whether every choice has ended and was read."""
        return self._left == 0


class Service:
    """Requests from any thread; one engine that serves them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.draining = False
        self.failure: BaseException | None = None
        self._tasks: deque[Callable[[], None]] = deque()
        self._changed = Condition()
        self._streams: dict[int, UpdateStream] = {}
        self._recent: deque[tuple[float, int]] = deque()
        self._closed = False
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: EngineRequest) -> UpdateStream:
        """The updates of a new request. Raises what `Engine.add` does, DrainingError and
        EngineFailedError."""

        def add() -> UpdateStream:
            if self.draining:
                raise DrainingError
            stream = UpdateStream(request)
            stream.number = self.engine.add(request)
            self._streams[stream.number] = stream
            return stream

        return self._between(add)

    def cancel(self, stream: UpdateStream) -> None:
        """Nobody reads on."""

        def drop() -> None:
            self._streams.pop(stream.number, None)
            self.engine.cancel(stream.number)

        if not stream.over:
            self._between(drop)

    def update_weights(self, weights: Mapping[str, Tensor], version: int | None = None) -> int:
        """Between two steps, what `Engine.update_weights` does."""
        return self._between(lambda: self.engine.update_weights(weights, version))

    def figures(self) -> dict[str, float]:
        """The present state, as `metrics` shows it."""
        return self._between(self._figures)

    def drain(self) -> None:
        """Take no more, finish what was begun, and end the thread."""
        self.draining = True
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _between(self, act: Callable[[], T]) -> T:
        future: Future[T] = Future()

        def task() -> None:
            try:
                future.set_result(act())
            except BaseException as error:  # noqa: BLE001  whoever asked gets it
                future.set_exception(error)

        with self._changed:
            if self.failure is not None:
                raise EngineFailedError from self.failure
            if not self._thread.is_alive():
                raise DrainingError
            self._tasks.append(task)
            self._changed.notify()
        while True:
            try:
                return future.result(timeout=1)
            except TimeoutError:
                if not self._thread.is_alive():
                    raise DrainingError from None

    def _run(self) -> None:
        try:
            while self._wait():
                for update in self.engine.step():
                    self._tell(update)
        except BaseException as error:  # noqa: BLE001  whoever waits must hear of it
            self.failure = error
            for stream in self._streams.values():
                stream.updates.put(None)
            while self._tasks:
                self._tasks.popleft()()

    def _wait(self) -> bool:
        """Do what others handed over; False when all is done and nothing more comes."""
        with self._changed:
            while not self._tasks and self.engine.idle and not self._closed:
                self._changed.wait()
            tasks = list(self._tasks)
            self._tasks.clear()
        for task in tasks:
            task()
        return not (self._closed and self.engine.idle and not self._tasks)

    def _tell(self, update: Update) -> None:
        now = time.monotonic()
        self._recent.append((now, update.told is not None))
        while self._recent[0][0] < now - _WINDOW:
            self._recent.popleft()
        stream = self._streams.get(update.request)
        if stream is None:
            return
        stream.updates.put(update)
        stream.untold -= update.finish is not None
        if not stream.untold:
            del self._streams[update.request]

    def _figures(self) -> dict[str, Any]:
        engine, scheduler = self.engine, self.engine.scheduler
        since = time.monotonic() - _WINDOW
        recent = sum(count for at, count in self._recent if at >= since)
        return {
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "blocks": engine.spec.blocks,
            "blocks_used": scheduler.pool.used,
            "blocks_kept": scheduler.pool.kept,
            "cache_bytes": engine.cache.bytes,
            "preemptions": scheduler.preemptions,
            "tokens_per_second": recent / _WINDOW,
            "weights": engine.weights,
            **{name: getattr(engine.counts, name) for name in _COUNTED},
        }


_GAUGES: Final = {
    "running": "Sequences in the current steps.",
    "waiting": "Sequences that wait for blocks or for their turn.",
    "blocks": "Blocks of the cache.",
    "blocks_used": "Blocks that running sequences hold.",
    "blocks_kept": "Blocks kept for prefixes that may come again.",
    "cache_bytes": "Bytes of the cache, used or not.",
    "tokens_per_second": "Generated tokens per second over the last 10 seconds.",
    "weights": "Version of the weights.",
}
_COUNTED: Final = {
    "steps": "Forward passes.",
    "prompt_tokens": "Tokens of prompts of choices that ended.",
    "cached_tokens": "Tokens of these that were found in the cache.",
    "computed_tokens": "Tokens through the model.",
    "generated_tokens": "Tokens drawn.",
}
"""What the engine counts (`EngineCounts`)."""
_COUNTERS: Final = {"preemptions": "Sequences that gave their blocks back.", **_COUNTED}


def metrics(figures: Mapping[str, float]) -> str:
    """Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    for kind, listed in (("gauge", _GAUGES), ("counter", _COUNTERS)):
        for name, meaning in listed.items():
            full = f"inference_{name}{'_total' if kind == 'counter' else ''}"
            lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"]
            lines.append(f"{full} {figures[name]:g}")
    return "\n".join(lines) + "\n"
