"""The state of a run of reinforcement learning between two places where it can stop, and its two
engines on one machine, of which one works while the other sleeps (Kimi K2, section 3.3).

Asleep, the inference engine has no cache and no weights: the update brings new ones anyway, as when
an engine's weights are dropped rather than moved away. The trainer's gradients are freed by its own
step, and its weights and states stay where they are; on a CPU there is nowhere to move them to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

import torch

from reference.config import RunSpec
from reference.ending import Stop
from reference.inference.cache import PagedCache
from reference.inference.engine import Engine
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.rl.critique.loop import Critique
from reference.rl.log import IterationMetrics, RunLog
from reference.rl.prompts import History, seed_of
from reference.rl.records import PromptGroup, Response, opening
from reference.rl.rollout import Rollout
from reference.rl.spec import RlSpec
from reference.rl.tasks import RlTask
from reference.text.dialog_loader import DialogLoader
from reference.text.loader import Loader
from reference.text.vocabulary import Vocabulary
from reference.trainer.trainee import Trainee
from reference.weight_sync.layout import SyncSpec
from reference.weight_sync.local import Colocated as HostCopies
from reference.weight_sync.local import Served

Updater = Callable[[Engine, Transformer, int], None]
"""Brings the weights of a model, of some version, into an engine that has room for them."""


def copied(engine: Engine, model: Transformer, version: int) -> None:
    """Copy weights tensor by tensor."""
    engine.update_weights(model.state_dict(), version)


def through_host(model: Transformer, sync: SyncSpec) -> Updater:
    """Copies weights through host memory, in buckets: `reference.weight_sync`, in one process."""
    kept = HostCopies(model.spec, next(model.parameters()).dtype, sync)

    def update(engine: Engine, model: Transformer, version: int) -> None:
        kept.keep([model], version)
        kept.update(Served(engine))

    return update


def engine_like(model: Transformer, words: Vocabulary, spec: EngineSpec) -> Engine:
    """An engine with a copy of a model's weights, on the CPU."""
    like = next(model.parameters())
    engine = Engine(Transformer(model.spec, dtype=like.dtype), words, spec)
    engine.model.stretch(model.spec.rope)
    copied(engine, model, 0)
    return engine


def sleep(engine: Engine) -> int:
    """Free the cache and the weights; returns their bytes. The engine must be idle."""
    if not engine.idle:
        raise ValueError("an engine with work in line does not sleep")
    freed = engine.cache.bytes
    engine.scheduler.forget()
    engine.cache = _cache(engine, 0)
    for tensor in engine.model.state_dict().values():
        freed += tensor.numel() * tensor.element_size()
        tensor.untyped_storage().resize_(0)
    return freed


def receive(engine: Engine, model: Transformer, version: int, update: Updater = copied) -> None:
    """Allocate weights, and take new ones."""
    for tensor in engine.model.state_dict().values():
        tensor.untyped_storage().resize_(tensor.numel() * tensor.element_size())
    update(engine, model, version)


def wake(engine: Engine) -> None:
    """Allocate the cache again."""
    engine.cache = _cache(engine, engine.spec.blocks)


def _cache(engine: Engine, blocks: int) -> PagedCache:
    like = torch.empty(0, dtype=next(engine.model.parameters()).dtype)
    return PagedCache(engine.model.spec, blocks, engine.spec.block_tokens, like)


Phase = Literal["rollout", "train"]


@dataclass(slots=True)
class RunPosition:
    """How far a run is."""

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
    """Places where the run could have stopped: numbers of checkpoints."""
    clock: int = 0
    written: int = 0


@dataclass(slots=True)
class Session:
    """A run in this process, and its observers."""

    spec: RlSpec
    run: RunSpec
    tasks: dict[str, RlTask]
    trainee: Trainee
    rollout: Rollout
    ptx: Loader | DialogLoader | None
    log: RunLog
    tell: Callable[[str], None]
    progress: Callable[[IterationMetrics], None]
    stop: Stop
    update: Updater = copied
    critique: Critique | None = None
    """The critic of responses to prompts that cannot be verified."""
    place: RunPosition = field(default_factory=RunPosition)
    history: History = field(default_factory=History)
    open: list[PromptGroup] = field(default_factory=list)
    """Prompts with unfinished responses."""
    ready: list[PromptGroup] = field(default_factory=list)
    """Prompts that this iteration learns from."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Of this iteration's line, so far."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase of this iteration."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time within as this phase."""
        began = perf_counter()
        try:
            yield
        finally:
            passed = perf_counter() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + passed


def new_group(session: Session, task: RlTask) -> PromptGroup:
    """The next prompt: a task with new responses."""
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
    return PromptGroup(number, task.name, responses)
