"""The training loop: steps, with evaluations and checkpoints between them, stage after stage.

A step is in `reference.trainer.step` (Kimi K2, arXiv:2507.20534, algorithm 1; DeepSeek-V3,
arXiv:2412.19437, section 2.1.2). Under `torchrun` the ranks of the run share the work as the
section `parallel` says; the first rank speaks for all.

OURS, since K2's report does not say: gradients are not clipped. Muon's update has the same size
whatever the gradient's norm is. A global norm would only rescale AdamW's few weights, by the norm
of weights that do not care. The norm is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from reference.checkpoint.piece import on_all, on_first
from reference.config import EverySpec, RunSpec
from reference.ending import Stop
from reference.kernels.attention_cuda import fused_attention
from reference.kernels.grouped_libraries import grouped_products
from reference.memory.stash import idle
from reference.metrics import Evaluation, Metrics, StepMetrics
from reference.model import Transformer
from reference.number_formats import words
from reference.optim.diagnostics import Spectrum, spectra
from reference.parallel.timeline import FOLDER
from reference.parallel.world import World, joined
from reference.trainer.profile import Profiler
from reference.trainer.resume import find, put_back, save
from reference.trainer.settings import Existing, opened, settings
from reference.trainer.stages import Stage, balanced, microbatches, stages_of
from reference.trainer.step import evaluate, train_step
from reference.trainer.trainee import Trainee, build

Ended = Literal["done", "interrupted", "diverged"]


class TaskEvaluation(Protocol):
    """Evaluates the model of a run on the tasks of `run.evaluate` (`reference.evaluate.run`)."""

    def refuse_impossible(self, spec: EverySpec, ranks: int) -> None:
        """Raises ScenarioError for tasks that this run cannot evaluate."""
        ...

    def evaluate_trainee(self, run: RunSpec, trainee: Trainee, stop: Stop) -> dict[str, Any] | None:
        """Metrics by task; None if the run was asked to stop meanwhile."""
        ...

    def metrics_line(self, metrics: dict[str, Any]) -> str:
        """The first metric of each task, for people."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """A run that ended: its history (what earlier processes did of it, too), and the model."""

    ended: Ended
    steps: tuple[StepMetrics, ...]
    evaluations: tuple[Evaluation, ...]
    step: int
    """Steps done."""
    parts: Mapping[int, Transformer]
    """The parts of the model that this rank holds, by chunk."""

    @property
    def model(self) -> Transformer:
        """The whole model, where one rank holds it in one part."""
        (found,) = self.parts.values()
        return found


@dataclass(frozen=True, slots=True)
class _Session:
    """One process's part of a run, and who watches it."""

    run: RunSpec
    tasks: TaskEvaluation
    trainee: Trainee
    log: Metrics
    progress: Callable[[StepMetrics], None]
    tell: Callable[[str], None]
    stop: Stop
    profiler: Profiler


def train(
    run: RunSpec,
    tasks: TaskEvaluation,
    *,
    progress: Callable[[StepMetrics], None] | None = None,
    tell: Callable[[str], None] | None = None,
    existing: Existing = "refuse",
    stop: Stop | None = None,
) -> Result:
    """Train to the end, or until `stop` says so; `progress` is called with every step, `tell` with
    what a person should know.

    Writes metrics and checkpoints where `train.output` names a folder. Raises UsageError and
    ScenarioError for what a user can mend.
    """
    with ExitStack() as stack:
        device = stack.enter_context(settings(run.train))
        world = stack.enter_context(joined(run.parallel, microbatches(run), device))
        if run.evaluate.every:
            tasks.refuse_impossible(run.evaluate, world.ranks)
        speaks = world.first
        tell, progress = (tell or _silent, progress or _silent) if speaks else (_silent, _silent)
        tell(words(run.train.precision, str(device)))
        if device.type == "cuda":
            tell(f"{fused_attention(device)}; {grouped_products(device)}")
        folder = Path(run.train.output) if run.train.output else None
        group = world.groups["world"].handle
        checkpoint, refused = None, ()
        if folder:
            opening = opened(folder, existing)
            on_first(group, lambda: stack.enter_context(opening))
            checkpoint, refused = find(run, folder, tell, group)
        for warning in idle(run.memory, run.model, device):
            tell(f"{warning.path}: {warning.message}")
        trainee = build(run, world, device, resumes=checkpoint is not None)
        if run.dialogs is not None:
            tell(str(trainee.prepared.facts))
        if checkpoint is not None:
            put_back(checkpoint, trainee, tell)
        last, own = checkpoint.step if checkpoint else None, folder if speaks else None
        log = Metrics(own or None, last_step=last, tensorboard=run.train.tensorboard)
        stack.enter_context(log)
        if folder and run.train.timeline:
            _open_timeline(world, folder, run)
            stack.callback(world.tape.close)
        for problem in refused:
            log.event("refused", trainee.step, message=problem.message)
        if checkpoint is not None:
            log.event("resume", trainee.step, name=checkpoint.path.name)
        profiler = Profiler(folder, run.train.profile, world.rank, world.tape)
        stack.callback(profiler.end)
        watched = log, progress, tell, stop or Stop()
        return _train_stages(_Session(run, tasks, trainee, *watched, profiler))


def _train_stages(session: _Session) -> Result:
    trainee, log = session.trainee, session.log
    ended: Ended = "done"
    for stage in stages_of(session.run):
        if trainee.step <= stage.end and ended == "done":
            ended = _train_stage(session, stage)
    if ended == "interrupted":
        log.event("interrupted", trainee.step, signal=session.stop.signal)
    return Result(ended, tuple(log.steps), tuple(log.evaluations), trainee.step, trainee.parts)


def _train_stage(session: _Session, stage: Stage) -> Ended:
    """The steps of a stage that are left, with evaluations and checkpoints between them."""
    run, trainee, log, stop = session.run, session.trainee, session.log, session.stop
    trainee.enter(stage)
    if trainee.step == stage.first:
        log.event("stage", trainee.step, name=stage.name, sequence=stage.sequence)
    stopped = False
    with balanced(trainee.models, run.balance.sequence_loss / stage.accumulate, stage.sequence):
        while trainee.step < stage.end:
            made = session.profiler.step(lambda: train_step(run, stage, trainee, stop))
            step, stopped = made.step, made.stopped
            if step is None:
                log.event("diverged", trainee.step)
                session.tell(f"the loss of step {trainee.step + 1} is no number; it was not made")
                return "diverged"
            log.step(step)
            session.progress(step)
            if _due(step.step, run.train.spectra_every):
                log.event("spectra", step.step, roles=spectra_of(trainee))
            over = step.step == stage.end
            if not over and _due(step.step, run.train.evaluate_every):
                _evaluate(session, stage, run.train.evaluate_sequences)
            if _due(step.step, run.evaluate.every):
                _ask(session)
            # Several ranks agree on it in the next step.
            stopped = stopped or (trainee.world.ranks == 1 and stop.signal is not None)
            if over or stopped or _due(step.step, run.train.checkpoint_every):
                save(run, trainee, log)
            if stopped and not over:
                return "interrupted"
    group = trainee.world.groups["world"].handle
    if on_first(group, lambda: not any(one.step == stage.end for one in log.evaluations)):
        # After the checkpoint: it may take long, and can be made up for.
        _evaluate(session, stage, run.train.final_sequences)
    return "done" if not on_first(group, lambda: stop.signal is not None) else "interrupted"


def _evaluate(session: _Session, stage: Stage, sequences: int | None) -> None:
    found = evaluate(session.trainee, stage, sequences, session.stop)
    if found is not None:
        session.log.evaluation(found)
        shown = f"{found.bits_per_byte:.4f} bits per byte of {found.tokens:,} held-out tokens"
        session.tell(f"step {found.step}: {shown}")


def _ask(session: _Session) -> None:
    """The tasks of `run.evaluate`, asked of the model as it is."""
    found = session.tasks.evaluate_trainee(session.run, session.trainee, session.stop)
    if found is not None:
        session.log.event("tasks", session.trainee.step, tasks=found)
        session.tell(f"step {session.trainee.step}: {session.tasks.metrics_line(found)}")


def _silent(_: object) -> None:
    """What ranks do that do not speak."""


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def spectra_of(trainee: Trainee) -> dict[str, dict[str, float]]:
    """Largest spectral norm, and mean SVD entropy over the matrices that were looked at, of the
    weights of each role, in all layers; the same on every rank. Replicas look at the same
    matrices, and so change no mean."""
    named = [one for model in trainee.models for one in model.named_parameters()]
    handle = trainee.world.groups["world"].handle
    merged: dict[str, list[Spectrum]] = {}
    for found in on_all(handle, lambda: spectra(named)):
        for role, spectrum in found.items():
            merged.setdefault(role, []).append(spectrum)
    return {role: asdict(_merged(some)) for role, some in merged.items()}


def _merged(some: list[Spectrum]) -> Spectrum:
    matrices = sum(one.matrices for one in some)
    entropy = sum(one.entropy * one.matrices for one in some) / matrices
    return Spectrum(max(one.spectral_norm for one in some), entropy, matrices)


def _open_timeline(world: World, folder: Path, run: RunSpec) -> None:
    """Record from now on what runs when on this rank."""
    header = {
        "ranks": world.ranks,
        "stage": world.mesh.stage(world.rank),
        "parallel": run.parallel.model_dump(mode="json"),
        "model": run.model.name,
        "microbatches": stages_of(run)[0].accumulate // world.mesh.data,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    world.tape.open(folder / FOLDER, world.rank, header)
