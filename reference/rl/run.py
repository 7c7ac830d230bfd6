"""A whole run: its parts and its iterations; and `measure`, which learns nothing.

result = learn_from(load_rl("characters"), RunObserver(progress=print))
result.iterations[-1].score
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reference.ending import Stop
from reference.inference.engine import Engine
from reference.model import Transformer
from reference.parallel.world import environment, joined
from reference.rl.batches import Batches, ptx_loader
from reference.rl.critique.ranking import critique_of, refuse
from reference.rl.environments import open_environments
from reference.rl.iteration import StoppedError, iterate
from reference.rl.prompts import History, known
from reference.rl.records import opening
from reference.rl.rollout import DivergedError, Rollout, temperature_at
from reference.rl.session import (
    IterationMetrics,
    RunLog,
    Session,
    copied,
    engine_like,
    lines_of,
    new_group,
    put_back,
    refuse_other,
    through_host,
)
from reference.rl.spec import RlSpec, run_of
from reference.rl.tasks import RlTask, tasks_of
from reference.text.prepare import Prepared
from reference.text.template import special_tokens
from reference.text.tokenizer import Vocabulary
from reference.trainer.resume import find
from reference.trainer.settings import Existing, opened, settings
from reference.trainer.trainee import Trainee, build
from twin.errors import Problem, UsageError

Ended = Literal["done", "interrupted", "diverged"]


@dataclass(frozen=True, slots=True)
class RlResult:
    """A run that ended: its history, of earlier processes too, and the model."""

    ended: Ended
    iterations: tuple[IterationMetrics, ...]
    model: Transformer
    step: int


@dataclass(frozen=True, slots=True)
class RunObserver:
    """Callbacks of a run, and what may stop it."""

    progress: Callable[[IterationMetrics], None] = lambda _: None
    tell: Callable[[str], None] = lambda _: None
    stop: Stop | None = None


def learn_from(
    spec: RlSpec, observer: RunObserver | None = None, existing: Existing = "refuse"
) -> RlResult:
    """Run to the end, or until it is asked to stop.

    Writes metrics and checkpoints where `train.output` names a folder. Raises UsageError and
    ScenarioError for what a user can mend.
    """
    with opened_session(spec, observer or RunObserver(), existing) as session:
        ended = _run(session)
        (model,) = session.trainee.models
        return RlResult(ended, tuple(session.log.iterations), model, session.trainee.step)


@contextmanager
def opened_session(spec: RlSpec, observer: RunObserver, existing: Existing) -> Iterator[Session]:
    """A run at its beginning, or where its folder's newest checkpoint left it. Raises as
    `learn_from` does."""
    _refuse_ranks()
    run, tasks = run_of(spec), tasks_of(spec.tasks)
    refuse(spec.critique, tasks)
    history = known(spec.prompts.known)
    folder = None if spec.train.output is None else Path(spec.train.output)
    with ExitStack() as stack:
        device = stack.enter_context(settings(run.train))
        world = stack.enter_context(joined(run.parallel, 1, device))
        if folder is not None:
            stack.enter_context(opened(folder, existing))
        checkpoint, _ = find(run, folder, observer.tell) if folder else (None, ())
        if checkpoint is not None:
            refuse_other(checkpoint, spec)
        trainee = build(run, world, device, resumes=checkpoint is not None)
        text = trainee.prepared
        assert isinstance(text, Prepared)
        trainee.loader = Batches(text.training.digest)
        log = stack.enter_context(RunLog(folder, lines=lines_of(checkpoint)))
        environments = open_environments(spec.environments, spec.tasks, tasks)
        engine = _engine(spec, trainee, tasks)
        (model,) = trainee.models
        session = Session(
            spec=spec,
            run=run,
            tasks=tasks,
            trainee=trainee,
            rollout=Rollout(
                engine,
                stack.enter_context(environments),
                spec.rollout,
                spec.environments,
                spec.train.sequence,
            ),
            ptx=None if spec.ptx is None else ptx_loader(spec.ptx, run, text),
            log=log,
            tell=observer.tell,
            progress=observer.progress,
            stop=observer.stop or Stop(),
            update=copied if spec.update is None else through_host(model, spec.update),
            critique=critique_of(spec.critique, engine, tasks),
            history=history,
        )
        if checkpoint is not None:
            put_back(checkpoint, session)
            engine.update_weights(model.state_dict(), session.place.version)
        yield session


def measure(session: Session) -> History:
    """The results of the first weights at every task, `rollout.responses` times, until all are
    over: K2 chooses prompts by the pass@k of the fine-tuned model (report, section 3.2.1)."""
    history, rollout = History(), session.rollout
    rollout.spec = rollout.spec.model_copy(update={"tokens": None, "patience": None, "slice": 0})
    rollout.temperature = temperature_at(session.spec.temperature, 0)
    tasks, count = list(session.tasks.values()), session.spec.prompts.count
    for first in range(0, len(tasks), count):
        groups = [new_group(session, task) for task in tasks[first : first + count]]
        responses = [response for group in groups for response in group.responses]
        rollout.run(responses)
        rollout.rest(responses)
        for response in responses:
            if response.ended != "failed" and response.verdict is not None:
                history.add(response.task, 1, int(response.success))
    return history


def _run(session: Session) -> Ended:
    place = session.place
    try:
        while place.iteration < session.spec.iterations:
            iterate(session)
    except StoppedError:
        return "interrupted"
    except DivergedError:
        session.log.write("diverged", {"iteration": place.iteration + 1})
        return "diverged"
    return "done"


def _engine(spec: RlSpec, trainee: Trainee, tasks: Mapping[str, RlTask]) -> Engine:
    """The inference engine, with the first weights. Raises UsageError TW605 and TW645."""
    (model,) = trainee.models
    words = Vocabulary(trainee.prepared.tokenizer, model.spec.vocab)
    if not words.markers:
        count = len(special_tokens())
        message = f"{words.words:,} ids leave no {count} for the template's markers"
        fix = f"pre-train with `data.tokenizer.vocab: {words.words - count}`"
        raise UsageError([Problem("TW605", "data.tokenizer.vocab", message, fix)])
    _refuse_lengths(spec, words, tasks)
    queue = spec.prompts.count * spec.rollout.responses
    return engine_like(model, words, spec.engine.model_copy(update={"queue": queue}))


def _refuse_lengths(spec: RlSpec, words: Vocabulary, tasks: Mapping[str, RlTask]) -> None:
    context = spec.train.sequence
    held = spec.engine.blocks * spec.engine.block_tokens
    if held < context:
        message = f"the engine's cache holds {held:,} tokens, a response has up to {context:,}"
        fix = f"`engine.blocks: {-(-context // spec.engine.block_tokens)}` or more"
        raise UsageError([Problem("TW645", "engine.blocks", message, fix)])
    longest, name = max(
        (len(opening(words, one.environment.opening)), n) for n, one in tasks.items()
    )
    if longest >= context:
        message = f"task `{name}` has {longest:,} tokens, and a response with it up to {context:,}"
        fix = f"`train.sequence: {2 * longest}`, or other tasks"
        raise UsageError([Problem("TW645", "train.sequence", message, fix)])


def _refuse_ranks() -> None:
    ranks = environment()[1]
    if ranks > 1:
        message = f"{ranks} ranks were started, and the loop runs on one"
        raise UsageError([Problem("TW646", "", message, "start it without `torchrun`")])
