"""Train a model: `python -m reference.train CONFIG [--set a.b=value ...] [--resume | --fresh]`.

CONFIG is a file or the name of a preset. One step, top to bottom: micro-batches forward and
backward under the memory policy, gradients summed in fp32; the optimizer; QK-clip on the maxima of
that forward; the routers' biases on its loads (Kimi K2, arXiv:2507.20534, algorithm 1; DeepSeek-V3,
arXiv:2412.19437, section 2.1.2).

OURS, since K2's report does not say: gradients are not clipped. Muon's update has the same size
whatever the gradient's norm is, so that a global norm would only rescale AdamW's few weights, by
the norm of weights that do not care. The norm is logged.

Exit codes: 0 done, 1 a bug, 2 usage, 3 invalid configuration, 5 the loss is no number any more, 130
and 143 ended by SIGINT and SIGTERM, with a checkpoint.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Literal

import torch

from reference.config import RunSpec
from reference.memory.idle import idle
from reference.memory.stash import Stash
from reference.metrics import Evaluation, Metrics, Step
from reference.model import Transformer
from reference.optim.qk_clip import clip
from reference.trainer.balance import balanced
from reference.trainer.command import Asked, parse, say
from reference.trainer.evaluate import evaluate
from reference.trainer.flop import flop_per_token
from reference.trainer.folder import Existing, opened
from reference.trainer.progress import progress_bar
from reference.trainer.resume import find, put_back
from reference.trainer.settings import settings
from reference.trainer.signals import Stop, ending_on_signals
from reference.trainer.stages import Stage, stages_of
from reference.trainer.trainee import Trainee, build, save
from twin.errors import TwinError

DIVERGED = 5
Ended = Literal["done", "interrupted", "diverged"]


@dataclass(frozen=True, slots=True)
class Result:
    """A run that ended: its history (what earlier processes did of it, too), and the model."""

    ended: Ended
    steps: tuple[Step, ...]
    evaluations: tuple[Evaluation, ...]
    step: int
    """Steps done."""
    model: Transformer


@dataclass(frozen=True, slots=True)
class _Session:
    """One process's part of a run, and who watches it."""

    run: RunSpec
    trainee: Trainee
    log: Metrics
    progress: Callable[[Step], None]
    tell: Callable[[str], None]
    stop: Stop


def train(
    run: RunSpec,
    *,
    progress: Callable[[Step], None] | None = None,
    tell: Callable[[str], None] | None = None,
    existing: Existing = "refuse",
    stop: Stop | None = None,
) -> Result:
    """Train to the end, or until `stop` says so; `progress` is called with every step, `tell` with
    what a person should know.

    Writes metrics and checkpoints where `train.output` names a folder. Raises UsageError and
    ScenarioError for what a user can mend.
    """
    tell = tell or (lambda _: None)
    with ExitStack() as stack:
        device = stack.enter_context(settings(run.train))
        folder = None if run.train.output is None else Path(run.train.output)
        if folder is not None:
            stack.enter_context(opened(folder, existing))
        checkpoint, refused = find(run, folder, tell) if folder else (None, ())
        for warning in idle(run.memory, run.model, device):
            tell(f"{warning.path}: {warning.message}")
        trainee = build(run, device)
        if checkpoint is not None:
            put_back(checkpoint, trainee, tell)
        last = checkpoint.step if checkpoint else None
        log = Metrics(folder, last_step=last, tensorboard=run.train.tensorboard)
        stack.enter_context(log)
        for problem in refused:
            log.event("refused", trainee.step, message=problem.message)
        if checkpoint is not None:
            log.event("resume", trainee.step, name=checkpoint.path.name)
        session = _Session(run, trainee, log, progress or (lambda _: None), tell, stop or Stop())
        ended: Ended = "done"
        for stage in stages_of(run):
            if trainee.step <= stage.end and ended == "done":
                ended = _train_stage(session, stage)
        if ended == "interrupted":
            log.event("interrupted", trainee.step, signal=session.stop.signal)
        steps, evaluations = tuple(log.steps), tuple(log.evaluations)
        return Result(ended, steps, evaluations, trainee.step, trainee.model)


def _train_stage(session: _Session, stage: Stage) -> Ended:
    """The steps of a stage that are left, with evaluations and checkpoints between them."""
    run, trainee, log, stop = session.run, session.trainee, session.log, session.stop
    trainee.enter(stage)
    if trainee.step == stage.first:
        log.event("stage", trainee.step, name=stage.name, sequence=stage.sequence)
    with balanced(trainee.model, run.balance.sequence_loss / stage.accumulate, stage.sequence):
        while trainee.step < stage.end:
            step = _train_step(run, stage, trainee)
            if step is None:
                log.event("diverged", trainee.step)
                session.tell(f"the loss of step {trainee.step + 1} is no number; it was not made")
                return "diverged"
            log.step(step)
            session.progress(step)
            if _due(step.step, run.train.spectra_every):
                log.event("spectra", step.step, roles=trainee.spectra())
            over = step.step == stage.end
            if not over and _due(step.step, run.train.evaluate_every):
                _evaluate(session, stage, run.train.evaluate_sequences)
            if over or stop.signal is not None or _due(step.step, run.train.checkpoint_every):
                save(run, trainee, log)
            if stop.signal is not None and not over:
                return "interrupted"
    if not any(one.step == stage.end for one in log.evaluations):
        # After the checkpoint: it may take long, and can be made up for.
        _evaluate(session, stage, run.train.final_sequences)
    return "done" if stop.signal is None else "interrupted"


def _train_step(run: RunSpec, stage: Stage, trainee: Trainee) -> Step | None:
    """One optimizer step; None, and no update, where the loss is no number."""
    started = perf_counter()
    model, optimizer = trainee.model.train(), trainee.optimizer
    optimizer.lr = stage.learning_rate(run, trainee.step)
    trainee.reset_counts()

    loss, kept = _gradients(run, stage, trainee)
    if not isfinite(loss):
        return None
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients).item()
    optimizer.step()
    optimizer.zero_grad()
    clipped = clip(model, optimizer, run.optimizer.clip)
    for router in model.routers():
        router.update_bias(run.balance.bias_rate)

    trainee.step += 1
    trainee.tokens += stage.tokens
    seconds = perf_counter() - started
    peak = trainee.peak_flop_per_s
    return Step(
        step=trainee.step,
        stage=stage.name,
        tokens=trainee.tokens,
        loss=loss,
        lr=optimizer.lr,
        gradient_norm=norm,
        max_logit=clipped.max_logit,
        clipped_heads=clipped.heads,
        load_imbalance=trainee.load_imbalance(),
        seconds=seconds,
        tokens_per_s=stage.tokens / seconds,
        mfu=flop_per_token(model, stage.sequence) * stage.tokens / seconds / peak if peak else None,
        kept_bytes=kept,
        peak_bytes=trainee.peak_bytes(),
    )


def _gradients(run: RunSpec, stage: Stage, trainee: Trainee) -> tuple[float, int]:
    """The mean loss over the step's tokens, its gradients left in the parameters, in fp32; and the
    bytes that waited for a backward pass, at most."""
    loss, kept = 0.0, 0
    for _ in range(stage.accumulate):
        tokens_BT, targets_BT = trainee.next_batch()
        with Stash(run.memory) as stash:
            part = trainee.model.loss(tokens_BT, targets_BT) / stage.accumulate
        kept = max(kept, sum(stash.kept.values()))
        part.backward()
        loss += part.item()
    return loss, kept


def _evaluate(session: _Session, stage: Stage, sequences: int | None) -> None:
    found = evaluate(session.trainee, stage, sequences, session.stop)
    if found is not None:
        session.log.evaluation(found)
        shown = f"{found.bits_per_byte:.4f} bits per byte of {found.tokens:,} held-out tokens"
        session.tell(f"step {found.step}: {shown}")


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    try:
        return _command(parse(arguments))
    except SystemExit as end:  # argparse's, after --help or a wrong option
        return end.code if isinstance(end.code, int) else 1
    except TwinError as error:
        say(str(error))
        return error.exit_code
    except Exception:  # noqa: BLE001  the last stop: what is left is our bug
        traceback.print_exc()
        return 1


def _command(asked: Asked) -> int:
    run, steps = asked.run, stages_of(asked.run)[-1].end
    with ending_on_signals() as stop, progress_bar(steps) as progress:
        result = train(run, progress=progress, tell=say, existing=asked.existing, stop=stop)
    if result.ended == "diverged":
        return DIVERGED
    if result.ended == "interrupted":
        say(f"interrupted after step {result.step}, with a checkpoint; `--resume` goes on")
        return stop.exit_code
    say(f"done after step {result.step}; metrics and checkpoints are in `{run.train.output}`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
