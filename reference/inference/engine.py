"""Requests in, tokens out, a step at a time; one thread, no clock, no randomness of its own.

The same requests in the same order give the same tokens. Beside which others a request runs
changes the order of sums in its matrix products and nothing else: a greedy request has the same
tokens unless two words tie to the last bits of fp32.

Legend: W words.

An engine on a thread of its own that serves many others, and its metrics.

What touches the engine is done by its thread between two steps: other threads hand it over and
wait.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from queue import Empty, Queue
from threading import Condition, Thread
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from reference.inference.forward import PagedCache, SequenceChunk, forward
from reference.inference.json_grammar import SchemaError
from reference.inference.request import (
    EngineRequest,
    Finish,
    GeneratedToken,
    NoTokenError,
    QueueFullError,
    RefusedError,
    Update,
    draw,
)
from reference.inference.scheduler import Scheduler, Sequence, StepPlan, sequences_of
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.text.tokenizer import Vocabulary
from twin.errors import Problem, UsageError

_SHOWN = 8
"""Tensors named in one message."""


@dataclass(slots=True)
class EngineCounts:
    """What an engine has done since it began; a prompt counts once per choice, when that ends."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    finished: dict[Finish, int] = field(default_factory=dict)


class Engine:
    """A model that serves many requests at once."""

    def __init__(self, model: Transformer, vocabulary: Vocabulary, spec: EngineSpec) -> None:
        self.model, self.vocabulary, self.spec = model.eval(), vocabulary, spec
        self.cache = PagedCache(
            model.spec, spec.blocks, spec.block_tokens, model.final_norm.gain.detach()
        )
        self.scheduler = Scheduler(spec)
        self.counts = EngineCounts()
        self.weights = 0
        """Version of the weights; each replacement counts one up, or says its own."""
        self._requests = 0
        self._arrivals = 0
        self.live: dict[int, list[Sequence]] = {}
        """The choices of requests that are not over, by number."""

    @property
    def idle(self) -> bool:
        """Whether nobody runs or waits."""
        return not self.scheduler.running and not self.scheduler.waiting

    def add(self, request: EngineRequest) -> int:
        """Put a request in line; its number. Raises RefusedError for what can never be served, and
        QueueFullError where too many wait."""
        self._refuse_impossible(request)
        here = len(self.scheduler.waiting) + len(self.scheduler.running)
        if here + request.choices > self.spec.queue + self.spec.running:
            raise QueueFullError(f"{len(self.scheduler.waiting)} sequences wait already")
        number, self._requests = self._requests, self._requests + 1
        made = sequences_of(request, number, self._arrivals)
        self._arrivals += len(made)
        self.live[number] = made
        self.scheduler.waiting.extend(made)
        return number

    def cancel(self, number: int) -> None:
        """Forget a request; one that is over is no mistake."""
        for sequence in self.live.pop(number, []):
            if not sequence.ended:
                self._end(sequence, "cancelled")

    def step(self) -> list[Update]:
        """Compute the next step and tell what it added, a token for each sequence whose tokens
        are all computed now."""
        plan = self.scheduler.plan()
        if not plan:
            return []
        logits = self.compute(plan)
        self.counts.steps += 1
        self.counts.computed_tokens += sum(count for _, count in plan)
        updates: list[Update] = []
        for (sequence, count), logits_W in zip(plan, logits, strict=True):
            self.scheduler.computed(sequence, count)
            if not sequence.pending:
                updates.append(self._extend(sequence, logits_W))
        return updates

    def compute(self, plan: StepPlan) -> Tensor:
        """Logits behind the last token that the plan takes of each sequence, [sequences, W]."""
        return forward(self.model, [_piece(*step) for step in plan], self.cache)

    def update_weights(self, weights: Mapping[str, Tensor], version: int | None = None) -> int:
        """Replace all weights in place; returns their version. The cache of the old ones is
        dropped: who runs goes on with its tokens so far, computed again under the new weights.
        Raises UsageError TW490 where tensors differ, and has replaced nothing then."""
        put_weights(self.model, weights)
        self.scheduler.forget()
        self.weights = self.weights + 1 if version is None else version
        return self.weights

    def _refuse_impossible(self, request: EngineRequest) -> None:
        words = self.model.spec.vocab
        if not request.prompt:
            raise RefusedError("prompt", "an empty prompt has no next token")
        if not all(0 <= token < words for token in request.prompt):
            raise RefusedError("prompt", f"token ids are 0 to {words - 1}")
        if request.max_tokens < 1:
            raise RefusedError("max_tokens", "must be at least 1")
        wanted, capacity = len(request.prompt) + request.max_tokens, self.scheduler.capacity
        if wanted > capacity:
            parts = f"{len(request.prompt)} tokens of prompt and {request.max_tokens} more"
            raise RefusedError("max_tokens", f"{parts} exceed the context of {capacity}")
        most = self.spec.running + self.spec.queue
        if not 1 <= request.choices <= most:
            raise RefusedError("n", f"must be 1 to {most}")

    def _extend(self, sequence: Sequence, logits_W: Tensor) -> Update:
        """Draw the next token of a sequence, and end it where that is the last one."""
        if not bool(torch.isfinite(logits_W).all()):
            return self._failed(sequence, "the model's logits are not finite")
        try:
            return self._told(sequence, self._draw(sequence, logits_W))
        except (NoTokenError, SchemaError) as error:
            return self._failed(sequence, f"{error}")
        except Exception as error:  # noqa: BLE001  a bug of ours, which is one choice's and no other's
            traceback.print_exception(error)
            return self._failed(sequence, "the server failed on this choice")

    def _told(self, sequence: Sequence, drawn: GeneratedToken) -> Update:
        """The next token of a sequence as told, the last one where it ends the sequence."""
        request = sequence.request
        drawn = replace(drawn, weights=self.weights)
        structured = sequence.constraint is not None and sequence.constraint.structured
        sequence.tokens.append(drawn.token)
        self.counts.generated_tokens += 1
        if drawn.token == self.vocabulary.end or drawn.token in request.stop_tokens:
            return self._last(sequence, drawn, "", "stop")
        if sequence.constraint is not None:
            sequence.constraint = sequence.constraint.after(drawn.token)
        piece = self.vocabulary.piece(drawn.token)
        marked = self.vocabulary.marker(drawn.token) is not None
        words = sequence.words
        text = words.flush() if marked else words.add(piece, stops=not structured)
        if sequence.words.stopped:
            return self._last(sequence, drawn, text, "stop")
        if sequence.made == request.max_tokens:
            return self._last(sequence, drawn, text, "length")
        return Update(sequence.number, sequence.choice, drawn, text, None, max(sequence.cached, 0))

    def _draw(self, sequence: Sequence, logits_W: Tensor) -> GeneratedToken:
        allowed_W = torch.from_numpy(self.vocabulary.known_W)
        request = sequence.request
        if sequence.constraint is not None:
            allowed_W = allowed_W & sequence.constraint.allowed()
        elif sequence.made < request.min_tokens:
            allowed_W = allowed_W.clone()
            allowed_W[[self.vocabulary.end, *request.stop_tokens]] = False
        if not bool(allowed_W.any()):
            raise NoTokenError("the answer's schema is too large to be followed")
        place = (sequence.choice, sequence.made)
        return draw(logits_W, allowed_W, request.sampling, place, request.top)

    def _last(
        self, sequence: Sequence, told: GeneratedToken | None, text: str, finish: Finish
    ) -> Update:
        text += sequence.words.end()
        self._end(sequence, finish)
        cached = max(sequence.cached, 0)
        return Update(sequence.number, sequence.choice, told, text, finish, cached)

    def _failed(self, sequence: Sequence, reason: str) -> Update:
        """The end of a choice that cannot go on; all others do."""
        self._end(sequence, "error")
        cached = max(sequence.cached, 0)
        return Update(sequence.number, sequence.choice, None, reason, "error", cached)

    def _end(self, sequence: Sequence, finish: Finish) -> None:
        self.scheduler.leave(sequence)
        self.counts.prompt_tokens += len(sequence.request.prompt)
        self.counts.cached_tokens += max(sequence.cached, 0)
        self.counts.finished[finish] = self.counts.finished.get(finish, 0) + 1
        if all(choice.ended for choice in self.live.get(sequence.number, [])):
            self.live.pop(sequence.number, None)


def _piece(sequence: Sequence, count: int) -> SequenceChunk:
    start = sequence.computed
    return SequenceChunk(sequence.tokens[start : start + count], start, sequence.blocks)


@torch.no_grad()
def put_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Copy `weights`, by the names of the model's state, over its own; types may differ.

    Raises UsageError TW490 with the names that are missing, unknown or of another shape.
    """
    own = model.state_dict()
    wrong = sorted(
        name
        for name in own.keys() | weights.keys()
        if name not in own or name not in weights or own[name].shape != weights[name].shape
    )
    if wrong:
        shown = ", ".join(f"`{name}`" for name in wrong[:_SHOWN])
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        message = f"the new weights lack, add or reshape {shown}{more}"
        raise UsageError([Problem("TW490", "weights", message, "give all tensors of the model")])
    for name, tensor in own.items():
        tensor.copy_(weights[name])


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
            if self.failure is not None:
                raise EngineFailedError
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
