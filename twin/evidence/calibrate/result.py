"""A calibration: what was fitted on which rows, how far off the base was and the result is, and
where all of it comes from. Errors are predicted over measured, less one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from math import exp, expm1
from statistics import mean, median
from typing import Any, Final, Literal

import numpy as np

from twin.evidence.calibrate import factors as numbers
from twin.evidence.calibrate.choice import ChosenFactors, JudgedFactors
from twin.evidence.calibrate.columns import Use
from twin.evidence.calibrate.factors import Array
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec

VERSION: Final = 1
"""Version of this document and of the notes in a written profile."""


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """One number of a profile, of a node's links or of a stack's host: before, after, the range in
    which it may lie (two standard deviations), the factor that moved it, and how much of that
    factor's spread the rows took away."""

    path: str
    before: float
    after: float
    low: float
    high: float
    factor: str
    learned: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A set of factors that was tried: values, mean error of rows left out, how many numbers the
    rows determine, and whether it was taken."""

    task: str
    factors: Mapping[str, float]
    left_out: float
    determined: float
    taken: bool


@dataclass(frozen=True, slots=True)
class RowError:
    """One row: seconds measured; errors of the base, of the fit, and of the fit without the row
    (None for rows that no fit may see)."""

    name: str
    task: str
    use: Use
    measured: float
    before: float
    after: float
    left_out: float | None


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of some rows: how many, mean, median and largest of their sizes, and their mean."""

    rows: int
    mean: float
    median: float
    worst: float
    bias: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Errors | None:
        """Of at least one row."""
        if not errors:
            return None
        sizes = [abs(error) for error in errors]
        return cls(len(sizes), mean(sizes), median(sizes), max(sizes), mean(errors))


StampKind = Literal["step times", "profiler trace", "measurement", "measurements"]
"""Kinds of sources: the last is a folder of whatever there is."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a folder: the formats that it was recognised as, what was taken from it, and what
    could not be used, in words."""

    file: str
    recognised: tuple[str, ...]
    took: tuple[str, ...]
    unused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where a calibration comes from: the kind of its source, the file, its SHA-256, the device,
    the base, when it was made, and by which version of the twin."""

    kind: StampKind
    file: str
    digest: str
    device: str
    base: str
    base_gpu: str
    date: str
    twin: str

    @classmethod
    def now(
        cls, kind: StampKind, file: str, digest: str,
        device: str, base: CalibrationSpec,
    ) -> Stamp:  # fmt: skip
        """Stamped with today's date and this version."""
        today = datetime.now(UTC).date().isoformat()
        return cls(kind, file, digest, device, base.name, base.gpu, today, version("twin"))


@dataclass(frozen=True, slots=True)
class Calibration:
    """A profile with everything that speaks for and against it.

    `parts` are the nodes and fabrics whose links were fitted, by `node` and `fabric`, and the
    stacks whose hosts were, by `software`. `interval` is by what a further step time may differ,
    four of five times. `others` are what of a trace is not mapped, as (name, why, calls, share).
    `files` are those of a folder."""

    name: str
    stamp: Stamp
    profile: CalibrationSpec
    parts: Mapping[str, Mapping[str, Spec]]
    found: tuple[FittedNumber, ...]
    tried: tuple[Trial, ...]
    rows: tuple[RowError, ...]
    interval: tuple[float, float] | None
    notes: tuple[str, ...] = ()
    others: tuple[tuple[str, str, int, float], ...] = ()
    spans: tuple[tuple[int, int], tuple[int, int]] | None = None
    files: tuple[SourceFile, ...] = ()

    @property
    def fitted(self) -> int:
        """How many numbers the fit was free to choose: the factors that were taken."""
        return sum(len(one.factors) for one in self.tried if one.taken)

    def errors(self, which: Literal["before", "after", "left_out"], use: Use) -> Errors | None:
        """Errors of the rows of one use."""
        own = [getattr(row, which) for row in self.rows if row.use == use]
        return Errors.of([error for error in own if error is not None])

    def to_json(self) -> dict[str, Any]:
        """Plain data, with keys in the order of the contract."""
        uses: tuple[Use, ...] = ("fit", "check")
        whiches: tuple[Literal["before", "after", "left_out"], ...] = (
            "before",
            "after",
            "left_out",
        )
        errors = {u: {w: self.errors(w, u) for w in whiches} for u in uses}
        return {
            "version": VERSION,
            "name": self.name,
            **asdict(self.stamp),
            "fitted_parameters": self.fitted,
            "determined": sum(one.determined for one in self.tried if one.taken),
            "found": [asdict(one) for one in self.found],
            "tried": [asdict(one) for one in self.tried],
            "errors": {
                use: {which: asdict(e) if e else None for which, e in own.items()}
                for use, own in errors.items()
            },
            "interval": list(self.interval) if self.interval else None,
            "rows": [asdict(row) for row in self.rows],
            "unmapped": [
                {"name": name, "why": why, "calls": calls, "share": share}
                for name, why, calls, share in self.others
            ],
            "profile": self.profile.model_dump(mode="json"),
            "nodes": _dumped(self.parts.get("node", {})),
            "fabrics": _dumped(self.parts.get("fabric", {})),
            "software": _dumped(self.parts.get("software", {})),
            "files": [asdict(one) for one in self.files],
            "notes": list(self.notes),
        }  # fmt: skip


def _dumped(parts: Mapping[str, Spec]) -> dict[str, Any]:
    return {name: part.model_dump(mode="json") for name, part in parts.items()}


def share(error: float) -> float:
    """Predicted over measured, less one, from its logarithm."""
    return expm1(error)


def found(
    chosen: ChosenFactors, base: CalibrationSpec, parts: Mapping[str, Mapping[str, Spec]]
) -> tuple[FittedNumber, ...]:
    """The numbers of the base and of named parts that the taken factors move, with their ranges."""
    best = chosen.best
    ridge = best.ridge
    moved: list[FittedNumber] = []
    facts = zip(best.factors, ridge.x, ridge.deviations, ridge.learned, strict=True)
    for factor, x, deviation, learned in facts:
        for path in factor.numbers:
            root, _, rest = path.partition(".")
            sections = {"": base} if root == "calibration" else parts.get(root, {})
            for name, section in sections.items():
                before = numbers.value(section, rest)
                if before is None:
                    continue
                ends = (x, x - 2 * deviation, x + 2 * deviation)
                after, low, high = (min(before * exp(v), numbers.ceiling(path)) for v in ends)
                shown = f"{name}.{rest}" if name else rest
                moved.append(
                    FittedNumber(shown, before, after, low, high, factor.name, float(learned))
                )
    return _joined(moved)


def _joined(parts: Iterable[FittedNumber]) -> tuple[FittedNumber, ...]:
    """A number that two factors move is one number: their product."""
    known: dict[str, FittedNumber] = {}
    for part in parts:
        other = known.get(part.path)
        if other is None:
            known[part.path] = part
            continue
        times, low, high = (v / part.before for v in (part.after, part.low, part.high))
        top = numbers.ceiling(part.path)
        known[part.path] = FittedNumber(
            part.path,
            part.before,
            min(top, other.after * times),
            min(top, other.low * low),
            min(top, other.high * high),
            f"{other.factor} x {part.factor}",
            min(other.learned, part.learned),
        )
    return tuple(known.values())


def trials(task: str, chosen: ChosenFactors) -> tuple[Trial, ...]:
    """All sets that were tried for one task."""

    def one(judged: JudgedFactors) -> Trial:
        values = {factor.name: value for factor, value in judged.values().items()}
        missed = float(np.mean(np.abs(np.expm1(judged.left_out))))
        return Trial(task, values, missed, judged.ridge.determined, judged is chosen.best)

    return tuple(one(judged) for judged in chosen.tried)


def row_errors(
    task: str, names: Sequence[str], measured: Sequence[float], chosen: ChosenFactors, after: Array
) -> tuple[RowError, ...]:
    """The rows of a fit."""
    facts = zip(names, measured, chosen.before, after, chosen.left_out, strict=True)
    return tuple(
        RowError(name, task, "fit", time, share(float(b)), share(float(a)), share(float(out)))
        for name, time, b, a, out in facts
    )


def interval(chosen: ChosenFactors) -> tuple[float, float] | None:
    """By what a further step may differ from its prediction, four of five times."""
    distance = chosen.distance
    return None if distance is None else (expm1(-distance), expm1(distance))
