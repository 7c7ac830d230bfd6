"""What changed between runs: key figures, breakdown and scenario fields of each candidate against
the baseline.

Both breakdowns sum to their step exactly, so their differences, cause by cause, sum to the step's
difference exactly, whatever the scenarios are. They say how the time is spent otherwise, not which
edit made it so: that is `twin.explore.study.attribution`, which plays further runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar, cast

from twin.planning.types import Warning
from twin.reports.breakdown import CAUSES, in_seconds
from twin.reports.report import Report
from twin.reports.verdict import difference
from twin.spec.kpis import KPIS, Better, Kpi

VERSION = 2
"""Version of the JSON document."""

Verdict = Literal["better", "worse", "same", "unknown"]
R = TypeVar("R")
D = TypeVar("D")
ABSENT = "(absent)"
"""Stands for a field that one of two scenarios does not have."""


@dataclass(frozen=True, slots=True)
class KpiDelta:
    """One key figure of two runs. `delta` = candidate - baseline in the figure's unit; `relative` =
    delta / baseline (None where the baseline is zero); `verdict` judges it by the direction that is
    good."""

    baseline: float | None
    candidate: float | None
    delta: float | None
    relative: float | None
    better: Better
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A scenario field that differs: its dotted path, and both values as a planner writes them."""

    path: str
    baseline: Any
    candidate: Any


@dataclass(frozen=True, slots=True)
class CandidateDelta:
    """A candidate of any kind against the baseline."""

    name: str
    hash: str
    fits: bool
    kpis: Mapping[str, KpiDelta]
    fields: tuple[FieldDifference, ...]
    notes: tuple[Warning, ...]
    """Why the two answers may not be comparable."""


@dataclass(frozen=True, slots=True)
class Delta(CandidateDelta):
    """A step against the baseline's."""

    step_delta_ns: int
    breakdown_ns: Mapping[str, int]
    """Difference of the breakdowns by cause; sums to `step_delta_ns` exactly."""

    def to_json(self) -> dict[str, Any]:
        """The candidate's part of the JSON document."""
        return {
            "name": self.name,
            "hash": self.hash,
            "fits": self.fits,
            "kpis": {key: asdict(delta) for key, delta in self.kpis.items()},
            "step_delta_ns": self.step_delta_ns,
            "breakdown_ns": dict(self.breakdown_ns),
            "breakdown": in_seconds(self.breakdown_ns),
            "fields": [asdict(field) for field in self.fields],
            "notes": [asdict(note) for note in self.notes],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side; the first report is the baseline."""

    reports: tuple[Report, ...]
    deltas: tuple[Delta, ...]
    """One per candidate, in the order given."""

    def sentences(self) -> list[str]:
        """How much each candidate's step differs from the baseline's, and the largest cause."""
        return [difference(self.reports[0], delta) for delta in self.deltas]

    def to_json(self) -> dict[str, Any]:
        """The comparison as one JSON document. `breakdown` is the change of the first candidate;
        every candidate's own is in `candidates`."""
        first = self.deltas[0]
        return {
            "version": VERSION,
            "baseline": {"name": self.reports[0].name, "hash": self.reports[0].hash},
            "step_delta_ns": first.step_delta_ns,
            "breakdown_ns": dict(first.breakdown_ns),
            "breakdown": in_seconds(first.breakdown_ns),
            "candidates": [delta.to_json() for delta in self.deltas],
            "reports": [report.to_json() for report in self.reports],
        }


def compare(reports: Sequence[Report]) -> Comparison:
    """Two or more runs side by side, the first as baseline.

    Raises ValueError for fewer than two reports.
    """
    return Comparison(tuple(reports), against_first(reports, _delta))


def _delta(baseline: Report, candidate: Report) -> Delta:
    return Delta(
        name=candidate.name,
        hash=candidate.hash,
        fits=candidate.fits,
        kpis=kpi_changes(KPIS, baseline.kpis, candidate.kpis),
        step_delta_ns=candidate.step_ns - baseline.step_ns,
        breakdown_ns={
            cause: candidate.breakdown_ns[cause] - baseline.breakdown_ns[cause] for cause in CAUSES
        },
        fields=differences(baseline.scenario, candidate.scenario),
        notes=_notes(baseline, candidate),
    )


def against_first(reports: Sequence[R], delta: Callable[[R, R], D]) -> tuple[D, ...]:
    """Every report but the first against the first, of whatever kind.

    Raises ValueError for fewer than two reports.
    """
    if len(reports) < 2:
        raise ValueError("a comparison needs at least two reports")
    baseline, *candidates = reports
    return tuple(delta(baseline, candidate) for candidate in candidates)


def kpi_changes(
    kpis: Iterable[Kpi],
    baseline: Mapping[str, float | None],
    candidate: Mapping[str, float | None],
) -> dict[str, KpiDelta]:
    """How each of these key figures differs, by its key."""
    return {kpi.key: _kpi_delta(baseline[kpi.key], candidate[kpi.key], kpi.better) for kpi in kpis}


def _kpi_delta(baseline: float | None, candidate: float | None, better: Better) -> KpiDelta:
    if baseline is None or candidate is None:
        return KpiDelta(baseline, candidate, None, None, better, "unknown")
    delta = candidate - baseline
    relative = delta / baseline if baseline else None
    verdict: Verdict = "same"
    if delta:
        verdict = "better" if (delta < 0) == (better == "lower") else "worse"
    return KpiDelta(baseline, candidate, delta, relative, better, verdict)


def differences(
    baseline: Mapping[str, Any], candidate: Mapping[str, Any]
) -> tuple[FieldDifference, ...]:
    """The leaves in which two resolved scenarios differ, `name` and `expect` apart, by dotted path
    in the scenario's own order."""
    left, right = _leaves(baseline), _leaves(candidate)
    paths = [*left, *(path for path in right if path not in left)]
    pairs = ((path, left.get(path, ABSENT), right.get(path, ABSENT)) for path in paths)
    return tuple(
        FieldDifference(*pair)
        for pair in pairs
        if pair[0] not in ("name", "expect", "sweep") and pair[1] != pair[2]
    )


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Dotted path to value; lists of plain values are leaves, lists of sections are numbered."""
    children: Mapping[str, Any] | None = None
    if isinstance(value, Mapping):
        children = cast(Mapping[str, Any], value)
    elif isinstance(value, (list, tuple)):
        items = cast(Sequence[Any], value)
        if any(isinstance(item, Mapping) for item in items):
            children = {str(index): item for index, item in enumerate(items)}
    if children is None:
        return {path: value}
    found: dict[str, Any] = {}
    for key, child in children.items():
        found |= _leaves(child, f"{path}.{key}" if path else key)
    return found


_COMPARABILITY = (
    ("model", "different-model", "The models differ: the runs do not do the same work."),
    (
        "train.tokens",
        "different-tokens",
        "The runs train on different numbers of tokens: days and cost differ for that, too.",
    ),
    (
        "train.global_batch",
        "different-batch",
        "The global batches differ: compare tokens per second, not step times.",
    ),
    (
        "train.sequence",
        "different-sequence",
        "The sequence lengths differ: the work per token is not the same.",
    ),
    (
        "train.precision",
        "different-precision",
        "The precisions differ: the runs may not train to the same loss.",
    ),
    (
        "train.routing",
        "different-routing",
        "Tokens are routed to experts under different assumptions.",
    ),
    (
        "calibration",
        "different-calibration",
        "The calibration profiles differ: part of the difference is how kernels were measured.",
    ),
)
"""Dotted path, code and message of every difference after which two runs are no longer like for
like."""


def _notes(baseline: Report, candidate: Report) -> tuple[Warning, ...]:
    changed = [field.path for field in differences(baseline.scenario, candidate.scenario)]
    notes = [
        Warning(code, message)
        for prefix, code, message in _COMPARABILITY
        if any(path == prefix or path.startswith(prefix + ".") for path in changed)
    ]
    unfit = dict.fromkeys(report.name for report in (baseline, candidate) if not report.fits)
    notes += [Warning("does-not-fit", f"{name} does not fit, so it cannot run.") for name in unfit]
    return tuple(notes)
