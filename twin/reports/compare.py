"""What changed between runs: key figures, breakdown and scenario fields of each candidate against
the baseline.

Both breakdowns sum to their step exactly, so their differences, cause by cause, sum to the step's
difference exactly, whatever the scenarios are. They say how the time is spent otherwise, not which
edit made it so: that is `twin.explore.study.attribution`, which simulates further runs.

`compare` is of training steps. `side_by_side` is of answers of any other kind: it compares key
figures, the parts of the time, and fields.

Steps side by side as tables: key figures, where the change went, which edit made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from twin.planning.types import Warning
from twin.reports.breakdown import CAUSES, in_seconds
from twin.reports.head import Head
from twin.reports.report import Report
from twin.reports.table import IN_BRACKETS, Table, changed, digits, duration, headed, show
from twin.reports.verdict import difference
from twin.spec.kpis import KPIS, Better, Kpi

if TYPE_CHECKING:
    from twin.kinds.base import Kind
import json
from typing import TYPE_CHECKING, Final

from twin.reports.breakdown import CAUSE_WORDS
from twin.reports.table import (
    Block,
    Notes,
    headless,
    warning_notes,
)
from twin.spec.kpis import OF_A_SITE, OF_FAILURES

if TYPE_CHECKING:  # attributions are made further up
    from twin.explore.study.attribution import Attribution

VERSION = 2
"""Version of the JSON document."""

Verdict = Literal["better", "worse", "same", "unknown"]
R = TypeVar("R")
D = TypeVar("D")
A = TypeVar("A", bound=Head)
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
    edited = [field.path for field in differences(baseline.scenario, candidate.scenario)]
    notes = [
        Warning(code, message)
        for prefix, code, message in _COMPARABILITY
        if any(path == prefix or path.startswith(prefix + ".") for path in edited)
    ]
    unfit = dict.fromkeys(report.name for report in (baseline, candidate) if not report.fits)
    notes += [Warning("does-not-fit", f"{name} does not fit, so it cannot run.") for name in unfit]
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class Change(CandidateDelta):
    """One candidate against the baseline."""

    parts: Mapping[str, float]
    """Difference of the seconds of each part."""


@dataclass(frozen=True, slots=True)
class SideBySide(Generic[A]):
    """Answers side by side; the first one is the baseline."""

    kind: Kind
    reports: tuple[A, ...]
    deltas: tuple[Change, ...]
    """One per candidate, in the order given."""

    def to_json(self) -> dict[str, Any]:
        """The comparison as one JSON document."""
        first = self.reports[0]
        return {
            "version": VERSION,
            "kind": self.kind.name,
            "baseline": {"name": first.name, "hash": first.hash},
            "candidates": [_renamed(asdict(delta), self.kind.parts) for delta in self.deltas],
            "reports": [report.to_json() for report in self.reports],
            "attribution": None,
        }

    def sentences(self) -> list[str]:
        """Which is best, what each candidate takes more or less than the baseline, then why two
        answers may not be comparable."""
        notes = [f"{delta.name}: {note.message}" for delta in self.deltas for note in delta.notes]
        return [*self.kind.winner(self.reports), *map(self.sentence, self.deltas), *notes]

    def tables(self) -> tuple[Table, ...]:
        """Key figures side by side."""
        first, *_ = self.reports
        table = headed("Key figures", "", first.name, *(delta.name for delta in self.deltas))
        for kpi in self.kind.kpis:
            cells = [first.ranged(kpi)]
            for report, delta in zip(self.reports[1:], self.deltas, strict=True):
                figure = delta.kpis[kpi.key]
                change = changed(figure.delta, figure.relative, kpi.unit) if figure.delta else ""
                cells.append(f"{report.ranged(kpi)}{change and f', {change}'}")
            table.add_row(kpi.label, *cells)
        table.caption = IN_BRACKETS
        return (table,)

    def sentence(self, delta: Change) -> str:
        """What a candidate takes more or less than the baseline, and where."""
        kind, base = self.kind, self.reports[0].name
        found = delta.kpis[kind.length]
        kpi = next(kpi for kpi in kind.kpis if kpi.key == kind.length)
        unfit = "" if delta.fits else " (it does not fit)"
        if not found.delta or found.relative is None:
            return f"{delta.name}{unfit}: {kind.subject} as long as in {base}."
        sign = 1 if found.delta > 0 else -1
        most = max(delta.parts, key=lambda part: sign * delta.parts[part])
        part = delta.parts[most]
        return (
            f"{delta.name}{unfit}: {kind.subject} {show(abs(found.delta), kpi.unit)} "
            f"({digits(100 * abs(found.relative))} %) {'slower' if sign > 0 else 'faster'} than in "
            f"{base}; {kind.changes_most} {kind.part_words(most)} "
            f"({'-' if part < 0 else '+'}{duration(abs(part))})."
        )


def side_by_side(kind: Kind, answers: Sequence[A]) -> SideBySide[A]:
    """Two or more answers side by side, the first as baseline.

    Raises ValueError for fewer than two answers.
    """
    deltas = against_first(answers, partial(_change, kind))
    return SideBySide(kind, tuple(answers), deltas)


def _change(kind: Kind, baseline: A, candidate: A) -> Change:
    before, after = kind.part_seconds(baseline), kind.part_seconds(candidate)
    return Change(
        name=candidate.name,
        hash=candidate.hash,
        fits=candidate.fits,
        kpis=kpi_changes(kind.kpis, baseline.kpis, candidate.kpis),
        parts={
            part: after.get(part, 0.0) - before.get(part, 0.0)
            for part in dict.fromkeys((*before, *after))
        },
        fields=differences(baseline.scenario, candidate.scenario),
        notes=kind.incomparable(baseline, candidate),
    )


def _renamed(change: dict[str, Any], parts: str) -> dict[str, Any]:
    """The candidate's part of the document."""
    return {parts if key == "parts" else key: value for key, value in change.items()}


_SHOWN_FIELDS: Final = 12
"""Differing scenario fields that a comparison lists before it counts the rest."""


def comparison_tables(
    comparison: Comparison, attributions: Sequence[Attribution] = ()
) -> tuple[Block, ...]:
    """Everything that a comparison has to say after its sentences."""
    parts: list[Block] = [
        legend(comparison),
        comparison_table(comparison),
        change_table(comparison),
    ]
    for index, attribution in enumerate(attributions, 1):
        parts += attribution_table(letter(index), attribution) if attribution.causes else ()
    for index, delta in enumerate(comparison.deltas, 1):
        parts.append(field_table(letter(index), delta.fields))
        if delta.notes:
            parts += warning_notes(delta.notes, f"Before comparing A and {letter(index)}")
    return tuple(parts)


def comparison_table(comparison: Comparison) -> Table:
    """Key figures side by side: the baseline A, then each candidate with its change in percent and
    whether that is better."""
    table = _lettered("Key figures", comparison, first=0)
    baseline = comparison.reports[0]
    for kpi in KPIS:
        values = [report.kpis[kpi.key] for report in comparison.reports]
        if kpi.key in OF_A_SITE | OF_FAILURES and not any(value is not None for value in values):
            continue
        cells = [
            _changed(kpi, report, delta.kpis[kpi.key], judged=delta.fits and baseline.fits)
            for report, delta in zip(comparison.reports[1:], comparison.deltas, strict=True)
        ]
        table.add_row(kpi.label, baseline.ranged(kpi), *cells)
    table.caption = IN_BRACKETS
    return table


def change_table(comparison: Comparison) -> Table:
    """Seconds by cause of each candidate against the baseline's; the rows sum to the change of the
    step. Causes that moved by less than a microsecond everywhere are left out."""
    table = _lettered("Where the step's change went", comparison, first=1)
    for cause, words in CAUSE_WORDS.items():
        moved = [delta.breakdown_ns[cause] for delta in comparison.deltas]
        if any(abs(ns) >= 1000 for ns in moved):
            table.add_row(words, *(_signed(ns) for ns in moved))
    table.add_section()
    table.add_row("step", *(_signed(delta.step_delta_ns) for delta in comparison.deltas))
    return table


def attribution_table(candidate: str, found: Attribution) -> list[Block]:
    """Which edits make a candidate's step longer or shorter than the baseline's: one row per cause,
    which sum to the difference, and how several were told apart. A mark after a cause leads to the
    note below that explains it."""
    title = f"Which edit made the step of {candidate} other than that of A"
    table = headless(title, "left", "left", "left", "right")
    notes = dict.fromkeys(cause.note for cause in found.causes if cause.note)
    marks = {note: " " + "*" * number for number, note in enumerate(notes, 1)}
    for cause in found.causes:
        name = cause.name + marks.get(cause.note, "")
        table.add_row(name, cause.base, cause.other, _signed(cause.ns))
    table.add_section()
    table.add_row("step", "", "", _signed(found.delta_ns))
    method = (found.method,) if len(found.causes) > 1 else ()
    lines = (*method, *(f"{mark.strip()} {note}" for note, mark in marks.items()))
    return [table, *([Notes("", lines)] if lines else [])]


def legend(comparison: Comparison) -> Notes:
    """Which letter stands for which scenario."""
    rows = [f"{letter(i)}  {report.name}" for i, report in enumerate(comparison.reports)]
    return Notes("", (f"{rows[0]} (baseline)", *rows[1:]))


def letter(index: int) -> str:
    """A, B, C and so on; after Z come numbers, which nobody compares by eye."""
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def field_table(candidate: str, fields: tuple[FieldDifference, ...]) -> Table:
    """The scenario fields in which a candidate differs from the baseline, as a planner writes
    them."""
    title = f"Fields that differ, A and {candidate} ({len(fields)})"
    table = headless(title, "left", "left", "left")
    for field in fields[:_SHOWN_FIELDS]:
        table.add_row(field.path, _written(field.baseline), _written(field.candidate))
    if len(fields) > _SHOWN_FIELDS:
        table.add_row(f"and {len(fields) - _SHOWN_FIELDS} more (--json lists all)", "", "")
    return table


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _lettered(title: str, comparison: Comparison, first: int) -> Table:
    """A table with one column per scenario, from the given one on."""
    letters = [letter(index) for index in range(first, len(comparison.reports))]
    return headed(title, "", *letters)


def _changed(kpi: Kpi, report: Report, delta: KpiDelta, *, judged: bool) -> str:
    """A candidate's figure and its change; better or worse only where both plans can run."""
    value = report.ranged(kpi)
    if not delta.delta:
        return value
    change = changed(delta.delta, delta.relative, kpi.unit)
    return f"{value}, {change}, {delta.verdict}" if judged else f"{value}, {change}"


def _signed(ns: int) -> str:
    sign = "+" if ns > 0 else "-" if ns < 0 else ""
    return f"{sign}{duration(abs(ns) / 1e9)}"
