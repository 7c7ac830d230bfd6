"""The state of a run of reinforcement learning between two places where it can stop, and its two
engines on one machine, of which one works while the other sleeps (Kimi K2, section 3.3); its log
and its checkpoints.

Asleep, the inference engine has no cache and no weights: the update brings new ones anyway, as when
an engine's weights are dropped rather than moved away. The trainer's gradients are freed by its own
step, and its weights and states stay where they are; on a CPU there is nowhere to move them to.

The log has a JSON line per iteration, per optimizer step, and per event. A checkpoint knows how
many lines there were: on resume the log is cut back to that, so that it holds each iteration once
however often the run was killed.

A checkpoint holds the trainer's state, the position, every unfinished response with its world, and
the history of tasks. The inference engine is not written: its weights are the trainer's, and its
cache is computed again wherever a run can stop. The folder is a run's like any other, so that it is
served, evaluated, converted, fine-tuned, and learned on again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal, Self, TextIO

import torch

from reference.checkpoint.folder import IntactCheckpoint, Snapshot
from reference.checkpoint.folder import save as write
from reference.config import RunSpec
from reference.ending import Stop
from reference.files import replace_synced
from reference.inference.engine import Engine
from reference.inference.forward import PagedCache
from reference.inference.spec import EngineSpec
from reference.metrics import NAME, line_of, read_lines
from reference.model import Transformer
from reference.rl.critique.ranking import Critique
from reference.rl.prompts import History, seed_of
from reference.rl.records import PromptGroup, Response, group_json, group_of, opening
from reference.rl.rollout import Rollout, RolloutCounts
from reference.rl.spec import RlSpec
from reference.rl.tasks import RlTask
from reference.text.dialogs import DialogLoader
from reference.text.loader import Loader
from reference.text.tokenizer import Vocabulary
from reference.trainer.resume import restore, written_by
from reference.trainer.settings import CHECKPOINTS
from reference.trainer.trainee import Trainee
from reference.weight_sync.layout import SyncSpec
from reference.weight_sync.ranks import Colocated as HostCopies
from reference.weight_sync.ranks import engine_target
from twin.errors import Problem, ScenarioError


@dataclass(frozen=True, slots=True)
class IterationMetrics:
    """A rollout with its updates. What differs between two runs of one configuration: `phases`,
    `waited_s` and `looked_s`."""

    iteration: int
    """From 1."""
    step: int
    """Optimizer steps so far."""
    version: int
    """Of the weights that wrote."""
    groups: int
    """Prompts whose responses were all finished, and learned."""
    left_out: int
    """Prompts that were finished and teach nothing: an environment failed."""
    open: int
    """Prompts that wait for the next iteration."""
    reward: float | None
    """Mean over the finished responses; null without any."""
    success: float | None
    """Share of them whose every criterion holds."""
    score: float | None
    """Mean share of criteria."""
    length: float | None
    """Mean tokens that the model wrote in a finished response."""
    longest: int
    ended: Mapping[str, int]
    """Finished responses by why they ended."""
    stale: float | None
    """Share of the finished responses' tokens that earlier weights wrote."""
    oldest: int
    """How many updates the oldest of them is behind."""
    entropy: float | None
    """Nats per learned token, before the first update."""
    log_ratio: float | None
    """Mean over responses, in nats: now against when they were written, before the updates."""
    mismatch: float | None
    """Largest difference of the two engines' log-probabilities of a token under the weights that
    wrote it, in nats: the error of their sums."""
    loss: float | None
    """The weighted sum that was descended in the last update."""
    temperature: float
    written: int
    """Tokens that the model wrote in this iteration."""
    computed: int
    """Tokens through the inference engine, those computed again included."""
    engine_steps: int
    answers: int
    """Of environments."""
    failures: int
    """Of environments."""
    waited_s: float
    """For environments while nothing else was done."""
    looked_s: float
    """For log-probabilities, a part of `train`."""
    phases: Mapping[str, float]
    """Seconds by phase: rollout, switch, train, update, wake."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Mean of each reward that is weighed."""
    agreement: float | None = None
    """Share of pairs of a right and a wrong response of which the critic prefers the right one."""


class RunLog:
    """The history of a run, in memory and in its folder. Use as a context manager."""

    def __init__(self, folder: Path | None, *, lines: int | None) -> None:
        """Begin, or go on behind so many lines."""
        self.count = 0
        self.iterations: list[IterationMetrics] = []
        self._file: TextIO | None = None
        kept: list[dict[str, Any]] = []
        if folder is not None:
            path = folder / NAME
            kept = read_lines(path)[:lines] if lines else []
            replace_synced(path, "".join(map(line_of, kept)))
            self._file = path.open("a", encoding="utf-8")
        for line in kept:
            self._recall(line)
        self.count = len(kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def iteration(self, facts: Mapping[str, Any]) -> IterationMetrics:
        """Append one iteration, whose fields these are."""
        made = IterationMetrics(**facts)
        self.iterations.append(made)
        self.write("iteration", facts)
        return made

    def write(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Append a line."""
        self.count += 1
        if self._file:
            self._file.write(line_of({"kind": kind, **facts}))
            self._file.flush()

    def sync(self) -> None:
        """Put all lines on disk: before a checkpoint that counts on them."""
        if self._file:
            os.fsync(self._file.fileno())

    def _recall(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "iteration":
            facts = {key: value for key, value in line.items() if key != "kind"}
            self.iterations.append(IterationMetrics(**facts))


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
        kept.update(engine_target(engine))

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


MAY_CHANGE: Final = frozenset({"output", "keep", "checkpoint_every"})
"""Fields of `train` that a resumed run may change."""


def save(session: Session) -> None:
    """Write a checkpoint, where the run writes anything."""
    spec, trainee, place = session.spec, session.trainee, session.place
    if spec.train.output is None:
        return
    session.log.sync()
    facts = {
        "tokens": trainee.tokens,
        "step": trainee.step,
        "loader": trainee.loader.state_dict(),
        "rl": {
            "spec": spec.model_dump(mode="json"),
            "place": asdict(place),
            "lines": session.log.count,
            "open": [group_json(group) for group in session.open],
            "ready": [group_json(group) for group in session.ready],
            "history": asdict(session.history),
            "facts": session.facts,
            "seconds": session.seconds,
            "seen": asdict(session.rollout.seen),
            "ptx": None if session.ptx is None else session.ptx.state_dict(),
        },
    }
    config = session.run.model_dump(mode="json")
    snapshot = Snapshot(place.points, written_by(trainee), facts, config)
    write(Path(spec.train.output) / CHECKPOINTS, snapshot, spec.train.keep)


def put_back(checkpoint: IntactCheckpoint, session: Session) -> None:
    """The checkpoint's state into a new session. Raises ScenarioError where it does not fit."""
    there = checkpoint.facts["rl"]
    trainee = session.trainee
    restore(checkpoint, trainee)
    trainee.step, trainee.tokens = checkpoint.facts["step"], checkpoint.facts["tokens"]
    session.place = RunPosition(**there["place"])
    session.open = [group_of(row) for row in there["open"]]
    session.ready = [group_of(row) for row in there["ready"]]
    session.history = History(**there["history"])
    session.facts, session.seconds = dict(there["facts"]), dict(there["seconds"])
    session.rollout.seen = RolloutCounts(**there["seen"])
    session.rollout.clock, session.rollout.written = session.place.clock, session.place.written
    if session.ptx is not None:
        session.ptx.load_state_dict(there["ptx"])
    session.tell(f"resumed in iteration {session.place.iteration + 1}, {session.place.phase}")


def lines_of(checkpoint: IntactCheckpoint | None) -> int | None:
    """Lines of the log that the checkpoint knows."""
    return None if checkpoint is None else checkpoint.facts["rl"]["lines"]


def refuse_other(checkpoint: IntactCheckpoint, spec: RlSpec) -> None:
    """Raises ScenarioError TW644 where the folder's run is no such one, or another."""
    before = checkpoint.facts.get("rl", {}).get("spec")
    if before is None:
        message = f"checkpoint `{checkpoint.path.name}` is of no run of `python -m reference.rl`"
        fix = "name another `train.output`"
        raise ScenarioError([Problem("TW644", "train.output", message, fix)])
    now = _compared(spec.model_dump(mode="json"))
    wrong = [name for name, value in _compared(before).items() if now.get(name) != value]
    if wrong:
        fix = "resume with its value, or begin anew with `--fresh`"
        message = "the run in this folder has another `{}`"
        raise ScenarioError([Problem("TW644", name, message.format(name), fix) for name in wrong])


def _compared(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same, by section; the trainer's by field."""
    sections = {name: value for name, value in spec.items() if name != "train"}
    train = {name: value for name, value in spec["train"].items() if name not in MAY_CHANGE}
    return {**sections, **{f"train.{name}": value for name, value in train.items()}}
