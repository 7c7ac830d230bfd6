"""An evaluation: each task in rounds of cases, then its summary; and a training run that evaluates
its own model every so many steps.

That evaluation is of a copy on the CPU which shares nothing with the trainee, neither counters nor
random numbers, so that a run with and without it has the same bits. It needs a single rank: a model
that is sharded over ranks is whole in no process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch

from reference.config import EverySpec, RunSpec
from reference.ending import Stop
from reference.evaluate.journal import RESULT, TABLE, EvaluationJournal
from reference.evaluate.protocols.protocol import EvaluationContext, Row, TaskSummary, protocol
from reference.evaluate.report import svg, table, text_of
from reference.evaluate.subject import Subject, generator_subject
from reference.evaluate.task import EvaluateSpec, EvaluationCase, EvaluationTask, open_task
from reference.evaluate.trained import copied, open_trained
from reference.files import replace_synced
from reference.generate.choose import choose
from reference.generate.server import ServerSpec
from reference.text.prepare import Prepared, prepare
from reference.trainer.settings import Existing
from reference.trainer.trainee import Trainee
from twin.errors import Problem, ScenarioError

ROUND: Final = 16
"""Cases that are asked together."""
Progress = Callable[[str, int, int], None]
"""Called with a task, its cases so far, and the number of them."""
_SETTINGS: Final = {
    *("form", "limit", "samples", "temperature", "top_p"),
    *("output_tokens", "context_tokens", "stop", "steps"),
}


def subject_of(spec: EvaluateSpec) -> Subject:
    """The model that is evaluated. Raises UsageError where there is none."""
    if spec.model == "rules" or _is_address(spec.model):
        return generator_subject(spec.model, _server(spec, spec.model), spec.at_once)
    return open_trained(Path(spec.model), spec.precision, constrained=spec.constrained)


def _is_address(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _server(spec: EvaluateSpec, url: str) -> ServerSpec | None:
    if not _is_address(url):
        return None
    more: dict[str, Any] = {"model": spec.server_model, "key_variable": spec.key_variable}
    return ServerSpec(url=url, at_once=spec.at_once, **more)


def evaluate(
    spec: EvaluateSpec,
    *,
    existing: Existing = "refuse",
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> dict[str, Any] | None:
    """The result as a JSON document, also written into the folder `output`, if any; None where
    `stop` ended it. Raises TwinError for what a user can mend."""
    subject = subject_of(spec)
    held_out = subject.held_out
    tasks = [open_task(choice, spec.limit, held_out) for choice in spec.tasks]
    head = {
        "version": 1,
        "seed": spec.seed,
        "model": dict(subject.identity),
        "judge": spec.judge,
        "tasks": {task.spec.name: task.digest for task in tasks},
    }
    folder = None if spec.output is None else Path(spec.output)
    journal = None if folder is None else EvaluationJournal(folder, head, existing)
    judge = None if spec.judge is None else choose(spec.judge, _server(spec, spec.judge))
    context = EvaluationContext(subject, spec.seed, judge, spec.at_once)
    results = ask_all(tasks, context, journal, progress=progress, stop=stop)
    if results is None:
        return None
    document = {**head, "tasks": results}
    if folder is not None:
        _write(folder, document)
    return document


def _write(folder: Path, document: dict[str, Any]) -> None:
    replace_synced(folder / TABLE, table(document))
    for name, task in document["tasks"].items():
        if task.get("matrix"):
            replace_synced(folder / f"{name}.svg", svg(task["matrix"], f"{name}: {task['about']}"))
    replace_synced(folder / RESULT, text_of(document))


def ask_all(
    tasks: Sequence[EvaluationTask],
    context: EvaluationContext,
    journal: EvaluationJournal | None = None,
    *,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> dict[str, Any] | None:
    """The result of every task, by name; None where `stop` ended it."""
    results: dict[str, Any] = {}
    for task in tasks:
        refusal = _refusal(task, context.subject)
        kind = protocol(task.spec.ask)
        cases = [] if refusal else list(kind.cases(task, context.subject))
        result: dict[str, Any] = {"skipped": refusal or "it has no case for this model"}
        if cases:
            rows = _rows(task, cases, context, journal, (progress, stop))
            if rows is None:
                return None
            result = _result(rows, kind.summary(task, rows))
        results[task.spec.name] = {**_about(task), **result}
    return results


def _refusal(task: EvaluationTask, subject: Subject) -> str | None:
    kind = protocol(task.spec.ask)
    if task.spec.cases == "held-out" and subject.held_out is None:
        return "the model has no held-out text"
    if subject.identity["kind"] == "rules" and not kind.rules_can_answer(task):
        return "the embedded rules have no skill for it"
    return subject.refusal(chat=kind.needs_chat(task), reads=kind.needs_likelihoods(task))


def _rows(
    task: EvaluationTask,
    cases: Sequence[EvaluationCase],
    context: EvaluationContext,
    journal: EvaluationJournal | None,
    watched: tuple[Progress | None, Stop | None],
) -> list[Row] | None:
    """The rows of all cases, those of the journal among them; None where `stop` ended it."""
    (progress, stop), name = watched, task.spec.name
    done = [] if journal is None else journal.rounds(name)
    rows = [row for round_ in done for row in round_]
    for number, first in enumerate(range(0, len(cases), ROUND)):
        if progress is not None:
            progress(name, len(rows), len(cases))
        if number < len(done):
            continue
        if stop is not None and stop.signal is not None:
            return None
        context.subject.begin()
        made = protocol(task.spec.ask).ask(task, cases[first : first + ROUND], context)
        if journal is not None:
            journal.add(name, made, number)
        rows += made
    if progress is not None:
        progress(name, len(rows), len(cases))
    return rows


def _about(task: EvaluationTask) -> dict[str, Any]:
    spec = task.spec
    return {
        **spec.model_dump(include={"about", "source", "ask", "scorer"}),
        "digest": task.digest,
        "settings": spec.model_dump(mode="json", include=_SETTINGS),
    }


def _result(rows: Sequence[Row], summary: TaskSummary) -> dict[str, Any]:
    return {
        "cases": len(rows),
        "metrics": {name: asdict(interval) for name, interval in summary.metrics.items()},
        "better": summary.better,
        "counts": dict(summary.counts),
        **({"matrix": summary.matrix} if summary.matrix else {}),
    }


def refuse_impossible(spec: EverySpec, ranks: int) -> None:
    """Raises ScenarioError TW590 where a run that evaluates its model has several ranks, and the
    errors of `open_task`, before the first step."""
    if ranks > 1:
        message = f"tasks need a model on one rank, and there are {ranks}"
        fix = "set `evaluate.every: 0`, and ask its checkpoints with `python -m reference.evaluate`"
        raise ScenarioError([Problem("TW590", "evaluate.every", message, fix)])
    for choice in spec.tasks:
        open_task(choice, spec.limit)


def evaluate_trainee(run: RunSpec, trainee: Trainee, stop: Stop) -> dict[str, Any] | None:
    """Metrics by task, for the log; None where the run was asked to stop meanwhile. Raises
    UsageError for a task that cannot be opened."""
    spec = run.evaluate
    with torch.random.fork_rng(devices=[]):
        prepared = trainee.prepared
        if not isinstance(prepared, Prepared):
            prepared = prepare(run.data, run.model.vocab)
        (model,) = trainee.models
        subject = copied(model, run, prepared)
        held_out = subject.held_out
        tasks = [open_task(choice, spec.limit, held_out) for choice in spec.tasks]
        results = ask_all(tasks, EvaluationContext(subject, spec.seed), stop=stop)
    return None if results is None else {name: _short(task) for name, task in results.items()}


def metrics_line(metrics: dict[str, Any]) -> str:
    """The first metric of each task, for people."""
    parts: list[str] = []
    for name, task in metrics.items():
        metric = next(iter(task), "skipped")
        value = "" if metric == "skipped" else f"{task[metric]['value']:.4f} "
        parts.append(f"{name} {value}{metric}")
    return "; ".join(parts)


def _short(task: dict[str, Any]) -> dict[str, Any]:
    if "skipped" in task:
        return {"skipped": task["skipped"]}
    kept = ("value", "low", "high", "cases")
    return {
        name: {key: interval[key] for key in kept} for name, interval in task["metrics"].items()
    }
