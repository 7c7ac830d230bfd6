"""Plan and steps of a run in phases to its report: days, dollars, checkpoints and data of each
phase's tokens, their sums, and a calendar.

What is counted is tokens / batch x step, phase by phase, as `days` of a plain run is; so a run of
one phase costs what the plain scenario does. Left out: the time between two phases (saving,
starting anew with another layout, loading), evaluation, and tokens that a whole number of steps
would round up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import ceil
from typing import Any, ClassVar, Final

from twin import units
from twin.errors import Problem
from twin.goodput.estimate import checkpoint
from twin.kinds.base import Run
from twin.kinds.phases import OF_THE_FULLEST, OF_TOKENS
from twin.kinds.phases.plan import NAME, PhaseCheck, PhasesPlan, PhasesTrace, costed
from twin.loading import scenario_hash
from twin.planning.types import Plan, Warning
from twin.reports import Report
from twin.reports.cost import Generated, data_of
from twin.reports.head import FITS, UNTIMED, Head, RunInfo, judge, provenance
from twin.reports.summary import catalog_use, resolved
from twin.reports.verdict import length_words
from twin.scenario import Scenario
from twin.spec.data import bytes_per_token

DAY: Final = 86400.0
DEFAULT_EVERY: Final = 1800.0
"""Seconds of work between two checkpoints where the scenario has no section `goodput`. Assumed:
"most teams checkpoint every 15-30 minutes" (NVIDIA, developer.nvidia.com/blog,
cut-checkpoint-costs-with-about-30-lines-of-python-and-nvidia-nvcomp); a large
batch's step alone may take two."""
EVERY_ASSUMED: Final = (
    "assumed: every 30 min (15 to 30 min are usual); a section goodput says it, or finds the best"
)
EVERY_KNOWN: Final = "goodput.checkpoint"
_AS_MEGATRON: Final = (
    "datasheet: ids as Megatron-LM's indexed data sets store them "
    "(megatron/core/datasets/indexed_dataset.py)"
)


@dataclass(frozen=True, slots=True)
class Span:
    """Days from the start of the run."""

    begin: float
    end: float

    def to_json(self, start: date | None) -> dict[str, Any]:
        """The days, and the dates on which they fall where the first is known."""
        return {
            "from_day": self.begin,
            "to_day": self.end,
            "from": _day(start, self.begin),
            "to": _day(start, self.end),
        }


def _day(start: date | None, days: float) -> str | None:
    return None if start is None else (start + timedelta(days=int(days))).isoformat()


@dataclass(frozen=True, slots=True)
class Dates:
    """When a phase is trained; None: what is before it or the phase itself has no time."""

    without_failures: Span | None
    with_failures: Span | None


@dataclass(frozen=True, slots=True)
class PhaseSaves:
    """Checkpoints of one phase."""

    number: int
    """The last is saved as the phase ends, since the next has another layout."""
    bytes: float
    """Of one: weights and optimizer states, each once."""
    every_seconds: float | None
    """Work between two; None: only at the end."""


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One phase, costed: as it is written, or as the nearest plan that can run and fits."""

    check: PhaseCheck
    report: Report | None
    """Of the step that is costed; None where nothing is."""
    kpis: Mapping[str, float | None]
    """Key figures of this phase: those of a step as they are, days and dollars of its tokens."""
    steps: float
    """Tokens of the phase over the batch that is costed."""
    saves: PhaseSaves | None
    data_bytes: float

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.check.name

    @property
    def costed(self) -> str | None:
        """What is costed: the phase `as written`, the `nearest` plan, or None."""
        if self.report is None:
            return None
        return "as written" if self.check.fits else "nearest"

    def to_json(self) -> dict[str, Any]:
        """The phase in plain data."""
        report, saves = self.report, self.saves
        return {
            **self.check.to_json(),
            "steps": self.steps,
            "costed": self.costed,
            "hash": report.hash if report else None,
            "kpis": dict(self.kpis),
            "step_ns": report.step_ns if report else None,
            "breakdown_ns": dict(report.breakdown_ns) if report else None,
            "checkpoints": saves.number if saves else None,
            "checkpoint_bytes": saves.bytes if saves else None,
            "data_bytes": self.data_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesReport(Head):
    """A run in phases, answered. Key figures are what the phases come to, intervals as if all
    phases erred together."""

    kind: ClassVar[str] = NAME

    tokens: int
    gpus: int
    phases: tuple[PhaseRun, ...]
    dates: tuple[Dates, ...]
    start: date | None
    interval_source: str
    """Where the time between two checkpoints comes from."""
    bytes_per_token: float
    bytes_source: str
    generated: Generated | None = None
    """What generating the data of the run takes, before its first phase."""

    @property
    def verdict(self) -> str:
        """What the whole run comes to, in a sentence or two."""
        return run_words(self)

    @property
    def possible(self) -> bool:
        """Whether every phase can run as written, however much memory it takes."""
        return all(phase.check.possible for phase in self.phases)

    @property
    def uncalibrated(self) -> tuple[Warning, ...]:
        """Why the times of some phase lie outside the calibrated range."""
        reports = [phase.report for phase in self.phases if phase.report]
        return tuple(warning for report in reports for warning in report.uncalibrated)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why phases cannot run as written."""
        return tuple(one for phase in self.phases for one in phase.check.problems)

    @property
    def data_bytes(self) -> float:
        """Bytes that all phases read."""
        return sum(phase.data_bytes for phase in self.phases)

    @property
    def checkpoints(self) -> int | None:
        """How many all phases save; None where one is not known."""
        found = [phase.saves.number for phase in self.phases if phase.saves]
        return sum(found) if len(found) == len(self.phases) else None

    @property
    def checkpoint_bytes(self) -> float | None:
        """Bytes of all checkpoints, if all are kept."""
        if self.checkpoints is None:
            return None
        return sum(phase.saves.number * phase.saves.bytes for phase in self.phases if phase.saves)

    def body(self) -> dict[str, Any]:
        """What only a run in phases has."""
        return {
            "tokens": self.tokens,
            "gpus": self.gpus,
            "phases": [phase.to_json() for phase in self.phases],
            "checkpoints": {
                "number": self.checkpoints,
                "bytes": self.checkpoint_bytes,
                "every_seconds": [
                    phase.saves.every_seconds if phase.saves else None for phase in self.phases
                ],
                "source": self.interval_source,
            },
            "data_bytes": self.data_bytes,
            "data": {"bytes_per_token": self.bytes_per_token, "source": self.bytes_source},
            "generated": self.generated.to_json() if self.generated else None,
            "calendar": [
                self._dated(phase, one) for phase, one in zip(self.phases, self.dates, strict=True)
            ],
        }

    def _dated(self, phase: PhaseRun, one: Dates) -> dict[str, Any]:
        both = {"without_failures": one.without_failures, "with_failures": one.with_failures}
        dates = {key: span.to_json(self.start) if span else None for key, span in both.items()}
        return {"phase": phase.name, **dates}


def report(plan: PhasesPlan, trace: PhasesTrace, run: RunInfo = UNTIMED) -> PhasesReport:
    """The answer to a run in phases. A phase that cannot run, or does not fit, is costed as the
    nearest plan that does; where there is none, days and dollars of the run are unknown."""
    scenario = plan.scenario
    per_token, source = stored(scenario)
    phases = tuple(
        _phase(check, step, per_token) for check, step in zip(plan.checks, trace.steps, strict=True)
    )
    # A layout that is only checked adds nothing, also where it cannot run.
    counted = tuple(phase for phase in phases if phase.kpis or phase.check.tokens)
    totals = sums([phase.kpis for phase in counted])
    reports = [phase.report for phase in phases if phase.report]
    fits = all(check.fits for check in plan.checks)
    return PhasesReport(
        name=scenario.name,
        hash=scenario_hash(scenario),
        scenario=resolved(scenario),
        fits=fits,
        kpis=totals,
        intervals=_intervals(counted),
        warnings=_warnings(reports),
        expectations=judge(scenario.expect, {FITS: fits, **totals}),
        provenance=provenance(
            scenario.calibration.name,
            trace.fidelity,
            sum(report.provenance.events for report in reports),
            catalog_use(scenario.ledger),
            run,
        ),
        tokens=scenario.train.tokens,
        gpus=scenario.cluster.gpus,
        phases=phases,
        dates=_dates(phases),
        start=scenario.start,
        interval_source=EVERY_ASSUMED if scenario.goodput is None else EVERY_KNOWN,
        bytes_per_token=per_token,
        bytes_source=source,
        generated=data_of(scenario),
    )


def _phase(check: PhaseCheck, step: Run | None, per_token: float) -> PhaseRun:
    data, chosen = check.tokens * per_token, costed(check)
    if step is None or chosen is None:
        steps = check.tokens / check.scenario.train.global_batch
        return PhaseRun(check, None, {}, steps, None, data)
    figures = of_tokens(step.report, check.tokens)
    saved = saves(step.plan, step.report, DAY * (figures["days"] or 0.0))
    steps = check.tokens / chosen.train.global_batch
    return PhaseRun(check, step.report, figures, steps, saved, data)


def saves(plan: Plan, report: Report, seconds: float) -> PhaseSaves:
    """Checkpoints of a phase that trains for so long without failures: one after each interval of
    work, and one as it ends; none where nothing is trained."""
    every = DEFAULT_EVERY if report.goodput is None else report.goodput.saves.every_seconds
    number = ceil(seconds / every) if every else int(seconds > 0)
    return PhaseSaves(number, checkpoint(plan).total, every)


def stored(scenario: Scenario) -> tuple[float, str]:
    """Bytes of a token on disk, and who says so."""
    data = scenario.data
    written = data is not None and data.bytes_per_token is not None
    source = "written by the planner: data.bytes_per_token" if written else _AS_MEGATRON
    return bytes_per_token(data, scenario.model.vocab), source


def of_tokens(report: Report, tokens: int) -> dict[str, float | None]:
    """The key figures of a run, those that grow with tokens for so many of them."""
    share = tokens / report.tokens
    return {
        key: None if value is None else value * share if key in OF_TOKENS else value
        for key, value in report.kpis.items()
    }


def sums(phases: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """What the key figures of phases come to: sums of those that grow with tokens, the largest
    memory, and MFU as its mean over time. None: unknown of some phase."""
    found = {key: _of_all(phases, key, sum) for key in OF_TOKENS}
    found |= {key: _of_all(phases, key, max) for key in OF_THE_FULLEST}
    days, failed = found["days"], found["days_with_failures"]
    fraction = days / failed if days and failed else None
    return {**found, "goodput_fraction": fraction, "mfu": _mfu(phases, days)}


def _of_all(
    phases: Sequence[Mapping[str, float | None]],
    key: str,
    summed: Callable[[Iterable[float]], float],
) -> float | None:
    values = [phase.get(key) for phase in phases]
    known = [value for value in values if value is not None]
    return summed(known) if known and len(known) == len(values) else None


def _mfu(phases: Sequence[Mapping[str, float | None]], days: float | None) -> float | None:
    if not days:
        return None
    return sum((phase["mfu"] or 0.0) * (phase["days"] or 0.0) for phase in phases) / days


def _intervals(phases: Sequence[PhaseRun]) -> dict[str, tuple[float, float] | None]:
    """Sums of the phases' ends: one model of one stack is wrong in all of them alike."""
    found: dict[str, tuple[float, float] | None] = {}
    for key in OF_TOKENS:
        spans = [_interval(phase, key) for phase in phases]
        known = [span for span in spans if span is not None]
        whole = bool(known) and len(known) == len(spans)
        found[key] = (sum(a for a, _ in known), sum(b for _, b in known)) if whole else None
    return found


def _interval(phase: PhaseRun, key: str) -> tuple[float, float] | None:
    span = phase.report.intervals.get(key) if phase.report else None
    if span is None or phase.report is None:
        return None
    share = phase.check.tokens / phase.report.tokens
    return span[0] * share, span[1] * share


def _dates(phases: Sequence[PhaseRun]) -> tuple[Dates, ...]:
    plain = _spans([phase.kpis.get("days") for phase in phases])
    failing = _spans([phase.kpis.get("days_with_failures") for phase in phases])
    return tuple(Dates(*pair) for pair in zip(plain, failing, strict=True))


def _spans(days: Sequence[float | None]) -> list[Span | None]:
    """One after the other; from a phase of unknown length on all are unknown."""
    found: list[Span | None] = []
    now: float | None = 0.0
    for length in days:
        end = None if now is None or length is None else now + length
        found.append(None if now is None or end is None else Span(now, end))
        now = end
    return found


def _warnings(reports: Iterable[Report]) -> tuple[Warning, ...]:
    """What any phase warns of, each once."""
    return tuple(dict.fromkeys(one for report in reports for one in report.warnings))


def run_words(report: PhasesReport) -> str:
    """What the whole run comes to, in a sentence or two."""
    kpis, phases = report.kpis, report.phases
    costed = [phase for phase in phases if phase.costed == "nearest"]
    tokens = units.format_quantity(report.tokens, "tokens").removesuffix("tok")
    head = f"{len(phases)} phases, {tokens} tokens on {report.gpus:,} GPUs"
    if kpis["days"] is None:
        missing = ", ".join(phase.name for phase in phases if phase.costed is None)
        return f"{head}: days and cost are unknown, since nothing near to {missing} fits."
    said = length_words(report, f"{head} take")
    if not costed:
        return f"Every phase fits. {said}"
    names = ", ".join(phase.name for phase in costed)
    return f"{said} This costs the nearest plan that fits in place of: {names}."
