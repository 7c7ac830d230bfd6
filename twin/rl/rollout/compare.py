"""Rollouts side by side: key figures, what engines do, and fields of each candidate against the
first. What engines do sums to an iteration's rollouts exactly, so its differences do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from twin.plan.types import Warning
from twin.report.compare import (
    FieldDifference,
    KpiDelta,
    against_first,
    differences,
    kpi_changes,
)
from twin.report.numbers import digits, duration
from twin.rl.rollout.answer import KIND, RolloutAnswer
from twin.rl.rollout.types import SPENT, Spent
from twin.spec.kpis import ROLLOUT_KPIS

VERSION: Final = 1
"""Version of the JSON document."""
_WORK: Final = (
    "model",
    "rl.rollout.model",
    "rl.rollout.requests",
    "rl.rollout.prompt",
    "rl.rollout.written",
    "rl.rollout.turns",
    "rl.rollout.read",
    "rl.rollout.partial",
)
"""What is written in an iteration, and by whom; partial rollouts leave requests to the next one."""


@dataclass(frozen=True, slots=True)
class RolloutDelta:
    """One candidate against the baseline."""

    name: str
    hash: str
    fits: bool
    kpis: Mapping[str, KpiDelta]
    spent: Mapping[Spent, float]
    """Difference of the seconds of an iteration that a mean engine spends on each."""
    fields: tuple[FieldDifference, ...]
    notes: tuple[Warning, ...]
    """Why the two may not be comparable."""

    def to_json(self) -> dict[str, Any]:
        """The candidate's part of the JSON document."""
        return {
            "name": self.name,
            "hash": self.hash,
            "fits": self.fits,
            "kpis": {key: asdict(delta) for key, delta in self.kpis.items()},
            "spent": dict(self.spent),
            "fields": [asdict(field) for field in self.fields],
            "notes": [asdict(note) for note in self.notes],
        }


@dataclass(frozen=True, slots=True)
class RolloutComparison:
    """Rollouts side by side; the first answer is the baseline."""

    reports: tuple[RolloutAnswer, ...]
    deltas: tuple[RolloutDelta, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as one JSON document. Which edit made the difference is not split."""
        first, *_ = self.reports
        return {
            "version": VERSION,
            "kind": KIND,
            "baseline": {"name": first.name, "hash": first.hash},
            "candidates": [delta.to_json() for delta in self.deltas],
            "reports": [report.to_json() for report in self.reports],
            "attribution": None,
        }


def compare(answers: Sequence[RolloutAnswer]) -> RolloutComparison:
    """Rollouts of two or more scenarios side by side, the first as baseline.

    Raises ValueError for fewer than two answers.
    """
    return RolloutComparison(tuple(answers), against_first(answers, _delta))


def is_other_work(paths: Iterable[str]) -> bool:
    """Whether rollouts that differ in these fields do not write the same."""
    return any(path == one or path.startswith(f"{one}.") for path in paths for one in _WORK)


def other_work(fields: Iterable[FieldDifference]) -> tuple[Warning, ...]:
    """That rollouts with these differences do not write the same, where they do not."""
    if not is_other_work(field.path for field in fields):
        return ()
    message = "Not the same is written in an iteration: compare tokens per second, not seconds."
    return (Warning("different-work", message),)


def difference(baseline: RolloutAnswer, delta: RolloutDelta) -> str:
    """One sentence on a candidate."""
    found = delta.kpis["rollout_seconds"]
    if not found.delta or found.relative is None:
        return f"{delta.name}: rollouts take as long as in {baseline.name}."
    sign = 1 if found.delta > 0 else -1
    most = max(delta.spent, key=lambda one: sign * delta.spent[one])
    part = delta.spent[most]
    return (
        f"{delta.name}: rollouts are {duration(abs(found.delta))} "
        f"({digits(100 * abs(found.relative))} %) {'slower' if sign > 0 else 'faster'} than in "
        f"{baseline.name}; what changes most is the time that engines spend on {SPENT[most]} "
        f"({'-' if part < 0 else '+'}{duration(abs(part))})."
    )


def _delta(baseline: RolloutAnswer, candidate: RolloutAnswer) -> RolloutDelta:
    before, after = (
        {key: share * one.seconds for key, share in one.spent.items()}
        for one in (baseline, candidate)
    )
    fields = differences(baseline.scenario, candidate.scenario)
    return RolloutDelta(
        name=candidate.name,
        hash=candidate.hash,
        fits=candidate.fits,
        kpis=kpi_changes(ROLLOUT_KPIS, baseline.kpis, candidate.kpis),
        spent={key: after[key] - before[key] for key in SPENT},
        fields=fields,
        notes=other_work(fields),
    )
