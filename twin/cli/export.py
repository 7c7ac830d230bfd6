"""`twin export`: a run as a file for other tools and other people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typer

from twin.answers import Run, ask, find, recall
from twin.cli.answer import answered, command, training
from twin.cli.output import Output
from twin.errors import Problem, UsageError
from twin.evidence.measured.compare import joined_trace
from twin.evidence.measured.run_folder import is_run, read
from twin.evidence.measured.step import trace
from twin.evidence.measured.summary import summary
from twin.interop.export.base import check, stamp_of_plan, write, write_parts
from twin.interop.export.megatron.launch import launch, written
from twin.interop.export.perfetto import timeline
from twin.kinds.base import Fidelity
from twin.loading import load_any
from twin.loading.files import find_scenario
from twin.planning import plan
from twin.planning.types import Plan
from twin.reports import verdict
from twin.reports.table import gibibytes, show

VERSION = 1
"""Version of the JSON document."""


@dataclass(frozen=True, slots=True)
class _Real:
    """A step of a real run, and the scenario that predicts it."""

    folder: str
    step: int | None
    beside: str | None
    sets: list[str]
    fidelity: Fidelity
    cache: bool


def export(  # noqa: PLR0913  one parameter per option of the command line
    *,
    subject: str,
    form: str,
    path: Path,
    sets: list[str],
    force: bool,
    fidelity: Fidelity,
    no_cache: bool,
    step: int | None,
    beside: str | None,
    output: Output,
) -> int | None:
    """A run as a file: timeline, tables or report."""

    check(form, path, force=force)
    if form == "megatron" and not is_run(subject):
        _launch(subject, sets, path, output)
        return
    if is_run(subject):
        asked = _Real(subject, step, beside, sets, fidelity, cache=not no_cache)
        _measured(asked, form, path, output)
        return
    if step is not None or beside is not None:
        message = "only the folder of a real run has steps, and a prediction beside it"
        raise typer.BadParameter(message, param_hint="SCENARIO")
    run = _recalled(subject, sets, output) or answered(
        subject,
        sets,
        output,
        cache=not no_cache,
        fidelity=fidelity,
        step_of="export",
    )
    written = write(run, form, path)
    files = [{"path": str(file), "bytes": file.stat().st_size} for file in written]
    output.document(
        {"version": VERSION, "format": form, "hash": run.report.hash, "fits": run.report.fits}
        | {"files": files}
    )
    for file in written:
        output.sentence(f"Wrote {file}, {gibibytes(file.stat().st_size)}.")
    output.message(verdict(run.report))


def _launch(subject: str, sets: list[str], path: Path, output: Output) -> None:
    """Export the arguments of a launcher: of a plan, without simulation."""

    stored = _recalled(subject, sets, output)
    planned = stored.plan if stored else plan(training(load_any(subject, sets), "export"))
    answer = _export_plan(planned, shlex.split(command(subject, sets))[2:], path, output)
    files = [{"path": str(path), "bytes": path.stat().st_size}]
    output.document({"version": VERSION, "format": "megatron"} | answer | {"files": files})


def _export_plan(plan: Plan, words: Sequence[str], path: Path, output: Output) -> dict[str, Any]:
    """Write a plan's arguments in the form that the file's name asks for, and say what they leave
    out; the answer as a document. Nothing is simulated."""

    found = launch(plan)
    stamp = stamp_of_plan(plan.scenario, words, "megatron")
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    write_parts({"": written(found, stamp, suffix).encode()}, path)
    output.sentence(f"Wrote {path}: {len(found.arguments)} arguments.")
    for loss in found.losses:
        output.message(f"Not said: {loss}")
    for caveat in found.caveats:
        output.message(f"Said differently: {caveat}")
    return {
        "hash": stamp.hash,
        "fits": plan.memory.fits,
        "losses": [asdict(loss) for loss in found.losses],
        "caveats": list(found.caveats),
    }


def _measured(asked: _Real, form: str, path: Path, output: Output) -> None:
    """Export a step of a real run, and its prediction beside it where that is asked for."""

    if form != "perfetto":
        message = f"the format `{form}` holds a plan's key figures, which a real run has not"
        raise UsageError([Problem("TW337", "", message, "--format perfetto")])

    run = read(asked.folder)
    found = summary(run, asked.step)
    shown = happened = trace(run, found.step)
    if asked.beside is not None:
        answer = answered(
            asked.beside,
            asked.sets,
            output,
            cache=asked.cache,
            fidelity=asked.fidelity,
            step_of="export",
        )
        shown = joined_trace(run.layout, happened, answer.trace)
    known = {"run": run.name, "step": str(found.step), "model": run.header.model}
    known |= {"created": run.header.created, "twin_version": version("twin")}
    (file,) = write_parts({"": timeline(shown, known)}, path)
    files = [{"path": str(file), "bytes": file.stat().st_size}]
    output.document(
        {"version": VERSION, "format": form, "run": str(run.folder), "step": found.step}
        | {"files": files}
    )
    output.sentence(f"Wrote {file}: step {found.step}, {show(happened.step_ns / 1e9, 's')}.")


def _recalled(subject: str, sets: list[str], output: Output) -> Run | None:
    """The stored run that the subject begins the name of; None where it is a scenario."""

    try:
        find_scenario(subject)
    except UsageError as no_scenario:
        try:
            entry = find(subject)
        except UsageError as no_run:
            if any(problem.code == "TW061" for problem in no_run.problems):
                raise
            raise no_scenario from None
    else:
        return None
    if sets:
        message = "--set changes a scenario; a stored run is what it is"
        raise typer.BadParameter(message, param_hint="--set")
    if not entry.current:
        output.message(f"{subject} was answered by other code: it is simulated again.")
    return ask(recall(entry), fidelity=entry.fidelity, command=entry.command)
