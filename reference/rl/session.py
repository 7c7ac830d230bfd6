"""One machine for two engines, of which one works while the other sleeps (Kimi K2, section 3.3).

Asleep, the inference engine has no cache and no weights: the update brings new ones anyway, as when
an engine's weights are dropped rather than moved away. The trainer's gradients are freed by its own
step, and its weights and states stay where they are; on a CPU there is nowhere to move them to.

What a run of reinforcement learning is between two places where it can stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor

from reference.config import RunSpec
from reference.ending import Stop
from reference.inference.cache import PagedCache
from reference.inference.engine import Engine
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.rl.critique.loop import Critique
from reference.rl.log import Iteration, Log
from reference.rl.prompts import History, seed_of
from reference.rl.records import Asked, Response, opening
from reference.rl.rollout import Rollout
from reference.rl.spec import RlSpec
from reference.rl.tasks import Task
from reference.text.dialog_loader import DialogLoader
from reference.text.loader import Loader
from reference.text.vocabulary import Vocabulary
from reference.trainer.trainee import Trainee
from reference.weight_sync.local import Colocated as HostCopies
from reference.weight_sync.local import Served
from reference.weight_sync.spec import SyncSpec

Updater = Callable[[Engine, Transformer, int], None]
"""What brings the weights of a model, of some version, into an engine that has room for them."""


def copied(engine: Engine, model: Transformer, version: int) -> None:
    """Tensor by tensor."""
    engine.update_weights(model.state_dict(), version)


def through_host(model: Transformer, sync: SyncSpec) -> Updater:
    """Through copies in host memory, in buckets: `reference.weight_sync`, in one process."""
    kept = HostCopies(model.spec, next(model.parameters()).dtype, sync)

    def update(engine: Engine, model: Transformer, version: int) -> None:
        kept.keep([model], version)
        kept.update(Served(engine))

    return update


def engine_like(model: Transformer, words: Vocabulary, spec: EngineSpec) -> Engine:
    """An engine with the weights of a model, a copy of its own on the CPU."""
    like = next(model.parameters())
    engine = Engine(Transformer(model.spec, dtype=like.dtype), words, spec)
    engine.model.stretch(model.spec.rope)
    copied(engine, model, 0)
    return engine


def sleep(engine: Engine) -> int:
    """Give back the cache and the weights; returns their bytes. Nobody may be in line."""
    if not engine.idle:
        raise ValueError("an engine with work in line does not sleep")
    freed = engine.cache.bytes
    engine.scheduler.forget()
    engine.cache = _cache(engine, 0)
    for tensor in _tensors(engine):
        freed += tensor.numel() * tensor.element_size()
        tensor.untyped_storage().resize_(0)
    return freed


def receive(engine: Engine, model: Transformer, version: int, update: Updater = copied) -> None:
    """Make room for weights, and take new ones."""
    for tensor in _tensors(engine):
        tensor.untyped_storage().resize_(tensor.numel() * tensor.element_size())
    update(engine, model, version)


def wake(engine: Engine) -> None:
    """Make the cache again; the weights are there."""
    engine.cache = _cache(engine, engine.spec.blocks)


def _cache(engine: Engine, blocks: int) -> PagedCache:
    like = torch.empty(0, dtype=next(engine.model.parameters()).dtype)
    return PagedCache(engine.model.spec, blocks, engine.spec.block_tokens, like)


def _tensors(engine: Engine) -> Iterable[Tensor]:
    return engine.model.state_dict().values()


Phase = Literal["rollout", "train"]


@dataclass(slots=True)
class Place:
    """How far a run is: all numbers."""

    iteration: int = 0
    """Iterations that are over."""
    phase: Phase = "rollout"
    drawn: int = 0
    """Prompts so far; each has a number."""
    learned: int = 0
    """Updates of this iteration."""
    version: int = 0
    """Of the weights that write."""
    points: int = 0
    """Places where the run could have stopped: the numbers of checkpoints."""
    clock: int = 0
    written: int = 0


@dataclass(slots=True)
class Session:
    """A run in this process, and who watches it."""

    spec: RlSpec
    run: RunSpec
    tasks: dict[str, Task]
    trainee: Trainee
    rollout: Rollout
    ptx: Loader | DialogLoader | None
    log: Log
    tell: Callable[[str], None]
    progress: Callable[[Iteration], None]
    stop: Stop
    update: Updater = copied
    critique: Critique | None = None
    """Who ranks responses to prompts that cannot be verified."""
    place: Place = field(default_factory=Place)
    history: History = field(default_factory=History)
    open: list[Asked] = field(default_factory=list)
    """Prompts whose responses are written."""
    ready: list[Asked] = field(default_factory=list)
    """Prompts that this iteration learns from."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Of this iteration's line, so far."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase of this iteration."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What runs within counts as this phase."""
        began = perf_counter()
        try:
            yield
        finally:
            passed = perf_counter() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + passed


def asked_for(session: Session, task: Task) -> Asked:
    """The next prompt: a task with responses that have not begun."""
    spec, number = session.spec, session.place.drawn
    environment = task.environment
    prompt = opening(session.rollout.engine.vocabulary, environment.opening)
    session.place.drawn += 1
    responses = [
        Response(
            group=number,
            index=index,
            task=task.name,
            kind=task.kind,
            seed=seed_of("response", spec.prompts.seed, number, index),
            prompt=prompt,
            dialog=environment.opening,
            state=environment.start(),
        )
        for index in range(spec.rollout.responses)
    ]
    return Asked(number, task.name, responses)
