"""A point of a sweep: one scenario made from a base by some other values, and its answer.

A layout that cannot run is an outcome like any other, and so is a bug, so that no point ends a
sweep. What was played is kept by content (`twin.explore.sweep.points`).
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from twin.answers.nearest import Document, replaced
from twin.answers.run_store import (
    discard_abandoned,
    optional,
    runs_folder,
    source_digest,
    write_file,
)
from twin.errors import FieldError, Problem, ScenarioError
from twin.kinds.base import Fidelity, Kind, kind_named, kind_of
from twin.loading import scenario_hash
from twin.loading.files import read_bytes
from twin.planning.types import Plan
from twin.reports.breakdown import lost, mean
from twin.reports.head import UNTIMED
from twin.reports.interval import circumstances
from twin.reports.kpi_intervals import intervals
from twin.reports.kpis import goodput_of, kpis, with_spans
from twin.reports.tuned_step import tuned_step
from twin.scenario import Root
from twin.units import BareNumberError, QuantityError

PointFidelity: TypeAlias = Fidelity | Literal["whole"]
"""How a point is answered: its step at some fidelity, or `whole`, as `twin run` answers work that
is not one step."""
Status = Literal["fits", "does_not_fit", "impossible", "failed"]
"""`fits` and `does_not_fit`: answered; `impossible`: no such layout can run; `failed`: not
answered, by a bug of ours or a worker that died."""


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """What is said of a point."""

    status: Status
    hash: str = ""
    """Of the scenario; empty where its sections contradict each other, and there is none."""
    fidelity: PointFidelity = "events"
    code: str = ""
    """Of the problem that makes it impossible."""
    path: str = ""
    """Of the field that the problem is about."""
    reason: str = ""
    """Why it does not fit, is impossible, or failed; empty where it fits."""
    hint: str = ""
    """The nearest fix of what is impossible."""
    kpis: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    """As `twin.reports.kpis` gives them; empty where nothing was played."""
    intervals: Mapping[str, tuple[float, float] | None] = field(
        default_factory=dict[str, tuple[float, float] | None]
    )
    """80 % intervals of the key figures of a step."""
    unnamed: Mapping[str, tuple[float, float] | None] = field(
        default_factory=dict[str, tuple[float, float] | None]
    )
    """The same where nobody named the software; empty of one that is never assumed."""
    step_ns: int | None = None
    lost_ns: Mapping[str, int] = field(default_factory=dict[str, int])
    """What a step by events loses beside computing, as `twin.reports.breakdown.lost` says."""
    headroom_bytes: float | None = None
    """What the fullest GPU has left; negative where it has too little."""
    peak_stage: int | None = None
    """The pipeline stage of the fullest GPU."""
    played_seconds: float = 0.0
    """Seconds on the wall clock that the answer took when it was played."""
    cached: bool = False
    """True where an earlier sweep played it."""

    @property
    def answered(self) -> bool:
        """True where the layout can run, whether or not it fits."""
        return self.status in ("fits", "does_not_fit")

    def to_json(self) -> dict[str, Any]:
        """The outcome in plain data."""
        return asdict(self)


def impossible(problem: Problem, fidelity: PointFidelity = "events") -> PointOutcome:
    """The outcome of a layout that cannot run, for one of its problems."""
    return PointOutcome(
        "impossible",
        fidelity=fidelity,
        code=problem.code,
        path=problem.path,
        reason=problem.message,
        hint=problem.hint,
    )


def failed(reason: str, fidelity: PointFidelity = "events") -> PointOutcome:
    """The outcome of a point that was not answered."""
    return PointOutcome("failed", fidelity=fidelity, reason=reason)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A scenario as other values on a base: quick to send to a worker, and to make there."""

    base: Document
    """From `twin.answers.nearest.document`; points may share it."""
    overrides: Mapping[str, Any]
    """Dotted path to plain data, as the base would say it: catalog names are opened already."""
    fidelity: PointFidelity = "events"
    assumed: bool = False
    """Whether nobody named the software of the base."""

    def told(self, outcome: PointOutcome) -> PointOutcome:
        """The outcome with the intervals that this point asks for: wider where its software is
        assumed."""
        named = any(path.split(".")[0] == "software" for path in self.overrides)
        if not self.assumed or named or not outcome.unnamed:
            return outcome
        return replace(outcome, intervals=outcome.unnamed)

    def scenario(self) -> Any:
        """The scenario. Raises pydantic's `ValidationError` where a section does not allow it."""
        return replaced(self.base, self.overrides)


def answer_point(
    point: SweepPoint, folder: Path | None = None, *, play_unfit: bool = True, source: str = ""
) -> PointOutcome:
    """What is said of a point: recalled from `folder`, or played and kept there (None: neither).

    With `play_unfit` off, a plan that does not fit costs a plan only, and has no key figures.
    `source` is the digest of the code that asks: a worker of other code refuses.
    """
    if source and source != source_digest():
        return failed("the worker runs other code of the twin than the sweep", point.fidelity)
    begin = time.perf_counter()
    try:
        scenario = point.scenario()
    except ValidationError as error:
        return impossible(problem_of(error), point.fidelity)
    name = scenario_hash(scenario)
    known = known_outcome(folder, name, point.fidelity, play_unfit=play_unfit)
    if known is not None:
        return known
    found = _answered(scenario, point.fidelity, play_unfit=play_unfit)
    found = replace(found, hash=name, played_seconds=time.perf_counter() - begin)
    # A failure may be of this machine, such as too little memory: it is tried again next time.
    if folder is not None and found.status != "failed":
        keep(folder, found)
    return found


def known_outcome(
    folder: Path | None, name: str, fidelity: PointFidelity, *, play_unfit: bool = True
) -> PointOutcome | None:
    """The outcome kept of the scenario with this hash; None where there is none, or one without the
    key figures that are wanted."""
    known = recall(folder, name, fidelity) if folder is not None else None
    if known is None or (play_unfit and known.status == "does_not_fit" and not known.kpis):
        return None
    return replace(known, cached=True)


def problem_of(error: ValidationError) -> Problem:
    """The first of what pydantic found wrong in plain data."""
    entry = error.errors(include_url=False)[0]
    path = ".".join(str(step) for step in entry["loc"])
    cause: object = entry.get("ctx", {}).get("error")
    if isinstance(cause, FieldError):
        return Problem(cause.code, path, cause.message, cause.hint)
    if isinstance(cause, QuantityError):
        code = "TW012" if isinstance(cause, BareNumberError) else "TW013"
        return Problem(code, path, cause.message, cause.hint)
    return Problem("TW017", path, str(entry["msg"]))


def _answered(scenario: Root, fidelity: PointFidelity, *, play_unfit: bool) -> PointOutcome:
    """The outcome, whatever happens on the way."""
    try:
        kind = kind_of(scenario) if fidelity == "whole" else kind_named("step")
        if fidelity == "whole" and kind.name == "step":
            fix = "leave the value out, or sweep a scenario of a training step"
            return impossible(
                Problem("TW185", "", "a training step among other work", fix), "whole"
            )
        plan = kind.plan(scenario)
        reason, spare = kind.shortage(plan)
        found = PointOutcome(
            "does_not_fit" if reason else "fits",
            fidelity=fidelity,
            reason=reason,
            headroom_bytes=spare,
        )
        if fidelity == "whole":
            report = kind.report(plan, kind.simulate(kind.lower(plan)), UNTIMED)
            status = found.status if report.possible else "impossible"
            return replace(found, status=status, kpis=report.kpis)
        found = replace(found, peak_stage=plan.memory.peak.stage)
        return _played(kind, plan, found) if play_unfit or not reason else found
    except ScenarioError as error:
        return impossible(error.problems[0], fidelity)
    except Exception as error:  # noqa: BLE001  a bug costs its point, and is told there
        return failed(traceback.format_exception_only(error)[-1].strip(), fidelity)


def _played(kind: Kind, plan: Plan, found: PointOutcome) -> PointOutcome:
    """The outcome with the key figures of the step; a whole report takes several times as long."""
    program = kind.lower(plan, "group" if found.fidelity == "group" else "folded")
    trace = kind.simulate(program)
    simulated = goodput_of(plan, trace.step_ns)
    spent = mean(trace.breakdown_ns, trace.ranks)
    figures = kpis(plan, trace.step_ns, spent, simulated)
    at, tuned = circumstances(plan, spent), tuned_step(plan, assumed=True)
    found = replace(found, kpis=figures, step_ns=trace.step_ns, lost_ns=lost(trace))
    if tuned is not None:
        doubt = intervals(replace(at, assumed=True), figures, tuned=tuned)[0]
        found = replace(found, unnamed=with_spans(doubt, figures, simulated))
    return replace(found, intervals=with_spans(intervals(at, figures)[0], figures, simulated))


_LOG = logging.getLogger(__name__)

VERSION: Final = 1
"""Version of the files."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a file holds. Anyone may edit it, so it is read only as far as its types hold."""

    version: Literal[1]
    twin_version: str
    source: str
    outcome: PointOutcome


_KEPT = TypeAdapter(_Kept)


def points_folder() -> Path:
    """Where outcomes are kept, as an absolute path, which workers in other folders find too."""
    return (runs_folder() / "points").absolute()


def place(folder: Path, name: str, fidelity: PointFidelity) -> Path:
    """The file of the scenario with this hash."""
    return folder / name[:2] / f"{name}-{fidelity}.json"


def recall(folder: Path, name: str, fidelity: PointFidelity) -> PointOutcome | None:
    """The outcome that this very code gave of the scenario with this hash; None where none is kept,
    or no sound one."""
    path = place(folder, name, fidelity)
    try:
        kept = _KEPT.validate_json(read_bytes(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        _LOG.debug("%s is not readable: %s", path, error)
        return None
    ours = (version("twin"), source_digest(), name, fidelity)
    theirs = (kept.twin_version, kept.source, kept.outcome.hash, kept.outcome.fidelity)
    return kept.outcome if ours == theirs else None


def keep(folder: Path, outcome: PointOutcome) -> None:
    """Keep an outcome; where the folder cannot be written, say so once and go on without."""
    path = place(folder, outcome.hash, outcome.fidelity)
    kept = _Kept(VERSION, version("twin"), source_digest(), outcome)
    text = json.dumps(asdict(kept), allow_nan=False)
    with optional("Points", folder):
        write_file(path, text.encode())


def tidy(folder: Path) -> None:
    """Delete what killed processes left half-written."""
    discard_abandoned(folder, "??/.*.tmp")
