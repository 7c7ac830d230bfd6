"""`twin export`: a run as a file for other tools and other people."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

import typer

from twin.answers import Run, ask, find, recall
from twin.cli.answer import answered, command, training
from twin.cli.output import Output
from twin.engine import plan
from twin.engine.trace import Trace
from twin.errors import Problem, UsageError
from twin.evidence.measured.compare import joined_trace
from twin.evidence.measured.run_folder import is_run, read
from twin.evidence.measured.step import trace
from twin.evidence.measured.summary import summary
from twin.interop.export import LAUNCHES
from twin.interop.export.base import (
    LaunchFormat,
    Stamp,
    check,
    format_of,
    stamp_of_plan,
    write,
    write_parts,
)
from twin.interop.export.perfetto import timeline
from twin.kinds.base import Fidelity
from twin.loading import load_any
from twin.loading.files import find_scenario
from twin.planning.types import Plan
from twin.reports import verdict
from twin.reports.table import gibibytes, show
from twin.units import parse

VERSION = 1
"""Version of the JSON document."""
_SPANS: Final = ("perfetto", "parquet")
"""Formats that hold spans, and nothing else of the step that depends on them."""


@dataclass(frozen=True, slots=True)
class _Real:
    """A step of a real run, and the scenario that predicts it."""

    folder: str
    step: int | None
    beside: str | None
    sets: list[str]
    fidelity: Fidelity
    cache: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """The spans that are asked for: a window in nanoseconds, and numbers of ranks."""

    window: tuple[int, int] | None
    ranks: tuple[int, int] | None

    @classmethod
    def read(cls, between: str | None, ranks: str | None) -> _Part | None:
        """None where nothing is asked for."""
        if between is None and ranks is None:
            return None
        times = _ends("--between", between, lambda text: round(1e9 * parse(text, "seconds")))
        return cls(times, _ends("--ranks", ranks, int))

    def of(self, trace: Trace) -> Trace:
        """The part of a trace."""
        first, last = self.ranks or (0, len(trace.roles) - 1)
        if first >= len(trace.roles):
            message = f"the simulation has {len(trace.roles):,} ranks, counted from 0"
            raise typer.BadParameter(message, param_hint="--ranks")
        end = int(trace.spans.end.max(initial=0))
        return trace.within(self.window or (0, end), range(first, last + 1))


def _ends(option: str, text: str | None, number: Callable[[str], int]) -> tuple[int, int] | None:
    """Both ends of a range; None where there is no text."""
    if text is None:
        return None
    try:
        first, last = (number(end) for end in text.split(".."))
    except ValueError:
        first, last = 0, -1
    if not 0 <= first <= last:
        example = "2s..2.5s" if option == "--between" else "0..7"
        message = f"`{text}` is no range: write it as {example}"
        raise typer.BadParameter(message, param_hint=option)
    return first, last


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
    between: str | None,
    ranks: str | None,
    output: Output,
) -> int | None:
    """A run as a file: timeline, tables or report."""

    check(form, path, force=force)
    part = _Part.read(between, ranks)
    if part is not None and (form not in _SPANS or is_run(subject)):
        message = f"`--between` and `--ranks` choose spans of a simulation: {', '.join(_SPANS)}"
        raise typer.BadParameter(message, param_hint="--format")
    if form in LAUNCHES and not is_run(subject):
        _launch(subject, sets, form, path, output)
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
    if part is not None:
        run = replace(run, trace=part.of(run.trace))
    written = write(run, form, path)
    files = [{"path": str(file), "bytes": file.stat().st_size} for file in written]
    output.document(
        {"version": VERSION, "format": form, "hash": run.report.hash, "fits": run.report.fits}
        | {"files": files}
    )
    for file in written:
        output.sentence(f"Wrote {file}, {gibibytes(file.stat().st_size)}.")
    output.message(verdict(run.report))


def _launch(subject: str, sets: list[str], form: str, path: Path, output: Output) -> None:
    """Export what another program is launched with: of a plan, without simulation."""

    stored = _recalled(subject, sets, output)
    planned = stored.plan if stored else plan(training(load_any(subject, sets), "export"))
    words = shlex.split(command(subject, sets))[2:]
    answer = _export_plan(planned, stamp_of_plan(planned.scenario, words, form), form, path, output)
    files = [{"path": str(path), "bytes": path.stat().st_size}]
    output.document({"version": VERSION, "format": form} | answer | {"files": files})


def _export_plan(plan: Plan, stamp: Stamp, form: str, path: Path, output: Output) -> dict[str, Any]:
    """Write a plan in the form that the file's name asks for, and say what it leaves out; the
    answer as a document. Nothing is simulated."""

    module = cast(LaunchFormat, format_of(form))
    found = module.exported(plan)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    write_parts({"": module.written(found, stamp, suffix).encode()}, path)
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
