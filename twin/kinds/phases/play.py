"""Phases to the whole run: each step played, or recalled, then days, dollars, checkpoints and data
of its tokens, and their sums.

What is counted is tokens / batch x step, phase by phase, as `days` of a plain run is; so a run of
one phase costs what the plain scenario does. Left out: the time between two phases (saving,
starting anew with another layout, loading), evaluation, and tokens that a whole number of steps
would round up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

from twin.answers import Fidelity, Run, run
from twin.kinds.phases.check import PhaseCheck, check_phases
from twin.kinds.phases.nearest import first
from twin.kinds.phases.saves import EVERY_ASSUMED, EVERY_KNOWN, saves, stored
from twin.kinds.phases.types import Dates, PhaseRun, PhaseSaves, Span, WholeRun
from twin.loading import scenario_hash
from twin.planning.types import Warning
from twin.reports import Report
from twin.reports.expect import FITS, judge
from twin.reports.with_data import data_of
from twin.scenario import Scenario

DAY: Final = 86400.0
OF_TOKENS: Final = (
    "days",
    "gpu_hours",
    "cost_usd",
    "energy_kwh",
    "energy_cost_usd",
    "co2_tonnes",
    "days_with_failures",
    "cost_usd_with_failures",
)
"""Key figures that grow with tokens, so that those of phases sum to those of the run."""
OF_THE_FULLEST: Final = ("peak_device_bytes", "peak_host_bytes_per_node")
"""Key figures of which the run has the largest."""


@dataclass(frozen=True, slots=True)
class How:
    """How phases are played, as `twin.answers.run` takes it."""

    fidelity: Fidelity = "events"
    cache: bool = True
    progress: Callable[[float], None] | None = None
    command: str | None = None


@dataclass(slots=True)
class _Player:
    """Steps that were played already, by the hash of their scenario."""

    how: How
    steps: int
    played: dict[str, Run] = field(default_factory=dict[str, Run])
    begun: int = 0

    def play(self, scenario: Scenario) -> Run:
        """The answer to a phase's scenario."""
        before, self.begun = self.begun, self.begun + 1
        identity = scenario_hash(scenario)
        if identity not in self.played:
            self.played[identity] = run(
                scenario,
                fidelity=self.how.fidelity,
                cache=self.how.cache,
                progress=self._told(before),
            )
        return self.played[identity]

    def _told(self, before: int) -> Callable[[float], None] | None:
        progress = self.how.progress
        if progress is None:
            return None
        return lambda share: progress((before + share) / self.steps)


def whole_run(scenario: Scenario, how: How | None = None) -> WholeRun:
    """The answer to a scenario with phases. A phase that cannot run, or does not fit, is costed as
    the nearest plan that does; where there is none, days and dollars of the run are unknown.

    Raises what `twin.answers.run` raises of a step that can be planned and not played.
    """
    begin, how = time.perf_counter(), how or How()
    checks = check_phases(scenario)
    player = _Player(how, max(1, len(checks)))
    per_token, source = stored(scenario)
    phases = tuple(_phase(check, player, per_token) for check in checks)
    # A layout that is only checked adds nothing, also where it cannot run.
    counted = tuple(phase for phase in phases if phase.kpis or phase.check.tokens)
    totals = sums([phase.kpis for phase in counted])
    reports = [phase.report for phase in phases if phase.report]
    fits = all(check.fits for check in checks)
    return WholeRun(
        name=scenario.name,
        hash=scenario_hash(scenario),
        tokens=scenario.train.tokens,
        gpus=scenario.cluster.gpus,
        fidelity=how.fidelity,
        phases=phases,
        kpis=totals,
        intervals=_intervals(counted),
        dates=_dates(phases),
        start=scenario.start,
        interval_source=EVERY_ASSUMED if scenario.goodput is None else EVERY_KNOWN,
        bytes_per_token=per_token,
        bytes_source=source,
        expectations=judge(scenario.expect, {FITS: fits, **totals}),
        warnings=_warnings(reports),
        wall_seconds=time.perf_counter() - begin,
        twin_version=version("twin"),
        reproduce=how.command,
        generated=data_of(scenario),
    )


def _phase(check: PhaseCheck, player: _Player, per_token: float) -> PhaseRun:
    data = check.tokens * per_token
    near = first(check.nearest)
    chosen = check.scenario if check.fits else near.scenario if near else None
    if chosen is None:
        steps = check.tokens / check.scenario.train.global_batch
        return PhaseRun(check, None, {}, steps, None, data)
    answer = player.play(chosen)
    figures = of_tokens(answer.report, check.tokens)
    days = figures["days"] or 0.0
    saved: PhaseSaves = saves(answer.plan, answer.report, DAY * days)
    steps = check.tokens / chosen.train.global_batch
    return PhaseRun(check, answer.report, figures, steps, saved, data)


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
