"""An evaluation: each task in rounds of cases, then what they come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from reference.evaluate import heatmap
from reference.evaluate.ask.way import Asking, Found, Row, way
from reference.evaluate.journal import RESULT, TABLE, Journal, write
from reference.evaluate.result import text_of
from reference.evaluate.spec import EvaluateSpec
from reference.evaluate.subjects.asked import ask_for
from reference.evaluate.subjects.subject import Subject
from reference.evaluate.subjects.trained import open_trained
from reference.evaluate.table import table
from reference.evaluate.task import Case, Task, open_task
from reference.generate.choose import choose
from reference.generate.generator import Generator
from reference.generate.server import ServerSpec
from reference.trainer.folder import Existing
from reference.trainer.signals import Stop

ROUND: Final = 16
"""Cases that are asked together."""
Progress = Callable[[str, int, int], None]
"""Called with a task, its cases so far, and all of them."""


def subject_of(spec: EvaluateSpec) -> Subject:
    """What a specification judges. Raises UsageError where there is none."""
    if spec.model == "rules" or spec.model.startswith(("http://", "https://")):
        return ask_for(spec.model, _server(spec, spec.model), spec.at_once)
    return open_trained(Path(spec.model), spec.precision, constrained=spec.constrained)


def _server(spec: EvaluateSpec, url: str) -> ServerSpec | None:
    if not url.startswith(("http://", "https://")):
        return None
    more: dict[str, Any] = {"model": spec.server_model, "key_variable": spec.key_variable}
    return ServerSpec(url=url, at_once=spec.at_once, **more)


def _judge(spec: EvaluateSpec) -> Generator | None:
    return None if spec.judge is None else choose(spec.judge, _server(spec, spec.judge))


def evaluate(
    spec: EvaluateSpec,
    *,
    existing: Existing = "refuse",
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> dict[str, Any] | None:
    """The result as a JSON document, written into the folder `output` where there is one; None
    where `stop` ended it. Raises TwinError for what a user can mend."""
    subject = subject_of(spec)
    held_out = subject.held_out
    tasks = [open_task(one, spec.limit, held_out) for one in spec.tasks]
    head = {
        "version": 1,
        "seed": spec.seed,
        "model": dict(subject.identity),
        "judge": spec.judge,
        "tasks": {task.spec.name: task.digest for task in tasks},
    }
    folder = None if spec.output is None else Path(spec.output)
    journal = None if folder is None else Journal(folder, head, existing)
    asking = Asking(subject, spec.seed, _judge(spec), spec.at_once)
    result = judge(tasks, asking, journal, progress=progress, stop=stop)
    if result is None:
        return None
    document = {**head, "tasks": result}
    if folder is not None:
        write(folder / TABLE, table(document))
        for name, one in result.items():
            if one.get("matrix"):
                write(folder / f"{name}.svg", heatmap.svg(one["matrix"], f"{name}: {one['about']}"))
        write(folder / RESULT, text_of(document))
    return document


def judge(
    tasks: Sequence[Task],
    asking: Asking,
    journal: Journal | None = None,
    *,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> dict[str, Any] | None:
    """What every task comes to, by name; None where `stop` ended it."""
    found: dict[str, Any] = {}
    for task in tasks:
        refusal = _refusal(task, asking.subject)
        if refusal is not None:
            found[task.spec.name] = {**_about(task), "skipped": refusal}
            continue
        cases = list(way(task.spec.ask).cases(task, asking.subject))
        if not cases:
            found[task.spec.name] = {**_about(task), "skipped": "it has no case for this model"}
            continue
        rows = _rows(task, cases, asking, journal, (progress, stop))
        if rows is None:
            return None
        found[task.spec.name] = _told(task, rows, way(task.spec.ask).sum_up(task, rows))
    return found


def _refusal(task: Task, subject: Subject) -> str | None:
    one = way(task.spec.ask)
    if task.spec.cases == "held-out" and subject.held_out is None:
        return "there is no held-out text to read"
    if subject.identity["kind"] == "rules" and not one.rules(task):
        return "the embedded rules have no skill for it"
    return subject.refusal(chat=one.chat(task), reads=one.reads(task))


def _rows(
    task: Task,
    cases: Sequence[Case],
    asking: Asking,
    journal: Journal | None,
    watched: tuple[Progress | None, Stop | None],
) -> list[Row] | None:
    """The rows of all cases, those of the journal among them."""
    progress, stop = watched
    done = [] if journal is None else journal.rounds(task.spec.name)
    rows = [row for round_ in done for row in round_]
    for number, first in enumerate(range(0, len(cases), ROUND)):
        if progress is not None:
            progress(task.spec.name, len(rows), len(cases))
        if number < len(done):
            continue
        if stop is not None and stop.signal is not None:
            return None
        asking.subject.begin()
        made = way(task.spec.ask).ask(task, cases[first : first + ROUND], asking)
        if journal is not None:
            journal.add(task.spec.name, made, number)
        rows += made
    if progress is not None:
        progress(task.spec.name, len(rows), len(cases))
    return rows


def _about(task: Task) -> dict[str, Any]:
    spec = task.spec
    return {
        "about": spec.about,
        "source": spec.source,
        "ask": spec.ask,
        "scorer": spec.scorer,
        "digest": task.digest,
        "settings": spec.model_dump(mode="json", include=_SETTINGS),
    }


_SETTINGS: Final = {
    "form",
    "limit",
    "samples",
    "temperature",
    "top_p",
    "output_tokens",
    "context_tokens",
    "stop",
    "steps",
}


def _told(task: Task, rows: Sequence[Row], found: Found) -> dict[str, Any]:
    told: Mapping[str, Any] = {
        "cases": len(rows),
        "metrics": {name: asdict(one) for name, one in found.metrics.items()},
        "better": found.better,
        "counts": dict(found.counts),
    }
    return {**_about(task), **told, **({"matrix": found.matrix} if found.matrix else {})}
