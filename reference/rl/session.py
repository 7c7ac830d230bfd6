"""What a run of reinforcement learning is between two places where it can stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

from reference.config import RunSpec
from reference.rl.colocated import Updater, copied
from reference.rl.critique.loop import Critique
from reference.rl.log import Iteration, Log
from reference.rl.prompts import History, seed_of
from reference.rl.records import Asked, Response
from reference.rl.rollout import Rollout
from reference.rl.spec import RlSpec
from reference.rl.tasks import Task
from reference.rl.turns import opening
from reference.text.dialog_loader import DialogLoader
from reference.text.loader import Loader
from reference.trainer.signals import Stop
from reference.trainer.trainee import Trainee

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
