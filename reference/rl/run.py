"""A whole run: what it is made of, and its iterations.

result = learn_from(load_rl("characters"), progress=print)
result.iterations[-1].score

How hard tasks are for a model: some responses to each, nothing learned.

K2 chooses prompts by the pass@k of the fine-tuned model (report, section 3.2.1). What is measured
here is written to a file that `prompts.known` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reference.config import RunSpec
from reference.ending import Stop
from reference.model import Transformer
from reference.parallel.world import environment, joined
from reference.rl.batches import Batches
from reference.rl.batches import ptx_loader as loader_of
from reference.rl.checkpoints import lines_of, put_back, refuse_other
from reference.rl.critique.loop import critique_of, refuse
from reference.rl.environments import open_environments
from reference.rl.iteration import StoppedError, iterate
from reference.rl.log import Iteration, Log
from reference.rl.prompts import History
from reference.rl.records import opening
from reference.rl.rollout import DivergedError, Rollout
from reference.rl.rollout import temperature_at as temperature
from reference.rl.session import Session, asked_for, copied, engine_like, through_host
from reference.rl.spec import RlSpec, run_of
from reference.rl.tasks import Task, tasks_of
from reference.text.prepare import Prepared
from reference.text.template import special_tokens
from reference.text.vocabulary import Vocabulary
from reference.trainer.folder import Existing, opened
from reference.trainer.resume import find
from reference.trainer.settings import settings
from reference.trainer.trainee import Trainee, build
from twin.errors import Problem, UsageError

Ended = Literal["done", "interrupted", "diverged"]


@dataclass(frozen=True, slots=True)
class Result:
    """A run that ended: its history (what earlier processes did of it, too), and the model."""

    ended: Ended
    iterations: tuple[Iteration, ...]
    model: Transformer
    step: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told, and who may stop the run."""

    progress: Callable[[Iteration], None] = lambda _: None
    tell: Callable[[str], None] = lambda _: None
    stop: Stop | None = None


def learn_from(spec: RlSpec, watch: Watch | None = None, existing: Existing = "refuse") -> Result:
    """Run to the end, or until it is asked to stop.

    Writes metrics and checkpoints where `train.output` names a folder. Raises UsageError and
    ScenarioError for what a user can mend.
    """
    with opened_session(spec, watch or Watch(), existing) as session:
        ended = _run(session)
        (model,) = session.trainee.models
        return Result(ended, tuple(session.log.iterations), model, session.trainee.step)


@contextmanager
def opened_session(spec: RlSpec, watch: Watch, existing: Existing) -> Iterator[Session]:
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
        checkpoint, _ = find(run, folder, watch.tell) if folder else (None, ())
        if checkpoint is not None:
            refuse_other(checkpoint, spec)
        trainee = build(run, world, device, resumes=checkpoint is not None)
        log = stack.enter_context(Log(folder, lines=lines_of(checkpoint)))
        environments = open_environments(spec.environments, spec.tasks, tasks)
        rollout = _rollout(spec, trainee, tasks)
        rollout.environments = stack.enter_context(environments)
        session = _session(spec, run, (tasks, trainee, rollout, log), watch)
        session.history = history
        if checkpoint is not None:
            put_back(checkpoint, session)
            (model,) = trainee.models
            rollout.engine.update_weights(model.state_dict(), session.place.version)
        yield session


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


def _session(
    spec: RlSpec,
    run: RunSpec,
    parts: tuple[dict[str, Task], Trainee, Rollout, Log],
    watch: Watch,
) -> Session:
    tasks, trainee, rollout, log = parts
    text = trainee.prepared
    assert isinstance(text, Prepared)
    trainee.loader = Batches(text.training.digest)
    (model,) = trainee.models
    return Session(
        spec=spec,
        run=run,
        tasks=tasks,
        trainee=trainee,
        rollout=rollout,
        ptx=None if spec.ptx is None else loader_of(spec.ptx, run, text),
        log=log,
        tell=watch.tell,
        progress=watch.progress,
        stop=watch.stop or Stop(),
        update=copied if spec.update is None else through_host(model, spec.update),
        critique=critique_of(spec.critique, rollout.engine, tasks),
    )


def _rollout(spec: RlSpec, trainee: Trainee, tasks: Mapping[str, Task]) -> Rollout:
    """The engine, with the first weights. Raises UsageError TW605 and TW645."""
    (model,) = trainee.models
    words = Vocabulary(trainee.prepared.tokenizer, model.spec.vocab)
    if not words.markers:
        count = len(special_tokens())
        message = f"{words.words:,} ids leave no {count} for the template's markers"
        fix = f"pre-train with `data.tokenizer.vocab: {words.words - count}`"
        raise UsageError([Problem("TW605", "data.tokenizer.vocab", message, fix)])
    context = spec.train.sequence
    _refuse_lengths(spec, words, tasks)
    line = spec.prompts.count * spec.rollout.responses
    engine = engine_like(model, words, spec.engine.model_copy(update={"queue": line}))
    nobody = open_environments(spec.environments.model_copy(update={"workers": 0}), (), tasks)
    with nobody as here:
        return Rollout(engine, here, spec.rollout, spec.environments, context)


def _refuse_lengths(spec: RlSpec, words: Vocabulary, tasks: Mapping[str, Task]) -> None:
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


VERSION = 1
"""Of the file."""


def measure(session: Session) -> History:
    """What the first weights do with every task, `rollout.responses` times, until all are over."""
    found, rollout = History(), session.rollout
    rollout.spec = rollout.spec.model_copy(update={"tokens": None, "patience": None, "slice": 0})
    rollout.temperature = temperature(session.spec.temperature, 0)
    tasks, count = list(session.tasks.values()), session.spec.prompts.count
    for first in range(0, len(tasks), count):
        groups = [asked_for(session, task) for task in tasks[first : first + count]]
        responses = [one for asked in groups for one in asked.responses]
        rollout.run(responses)
        rollout.rest(responses)
        for one in responses:
            if one.ended != "failed" and one.verdict is not None:
                found.add(one.task, 1, int(one.verdict.success))
    return found


def document(history: History, made: Mapping[str, Task] | None = None) -> dict[str, Any]:
    """The same as JSON, with pass@1 and pass@k for all k that were tried; of the tasks that are
    `made`, means by kind and level, and by tag."""
    tasks: dict[str, Any] = {}
    for name, tries in history.tries.items():
        shares = [history.pass_at(k, name) for k in range(1, tries + 1)]
        tasks[name] = {"tries": tries, "right": history.right[name], "pass_at": shares}
    return {"version": VERSION, "tasks": tasks, "means": _means(tasks, made or {})}


def _means(tasks: Mapping[str, Any], made: Mapping[str, Task]) -> dict[str, Any]:
    """How many tasks a kind and level, and a tag, have, and their mean pass@k."""
    rows: dict[str, list[list[float]]] = {}
    for name, one in tasks.items():
        if name in made:
            for tag in dict.fromkeys((f"{made[name].kind} {made[name].level}", *made[name].tags)):
                rows.setdefault(tag, []).append(one["pass_at"])
    found: dict[str, Any] = {}
    for tag, some in sorted(rows.items()):
        each = zip(*some, strict=False)  # of responses whose environment failed there are fewer
        found[tag] = {"tasks": len(some), "pass_at": [sum(one) / len(some) for one in each]}
    return found


def known(file: str | None) -> History:
    """What a file says of tasks; nothing without one. Raises UsageError TW647."""
    found = History()
    if file is None:
        return found
    try:
        read = json.loads(Path(file).read_text(encoding="utf-8"))
        for name, one in _tasks(read):
            found.add(name, int(one["tries"]), int(one["right"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"`{file}` does not say how hard tasks are: {error}"
        fix = "`python -m reference.rl CONFIG --measure FILE` writes one"
        raise UsageError([Problem("TW647", "prompts.known", message, fix)]) from None
    return found


def _tasks(read: Any) -> Iterable[tuple[str, Any]]:
    if read["version"] != VERSION:
        raise ValueError(f"version {read['version']}")
    return read["tasks"].items()
