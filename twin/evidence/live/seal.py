"""A seal: what the twin predicted, when, by which code, and a digest over all of it.

A seal is a file that is written once. After any later change its digest no longer matches, and it
is refused. That proves that nobody changed a sealed prediction by accident. Someone who rewrites
the file and its digest can still forge one, so publish the digest before the run (in a commit or a
message) to convince others.

Intervals are never invented: where nothing is known of the error there is none, and a prediction
without an interval is never a hit. The report's own intervals come from its calibration. Where it
has none, earlier checked predictions give one: with the residuals r = ln(measured / predicted) of n
of them, the interval reaches the ceil(0.8 (n + 1))-th smallest |r| to both sides. The next
prediction falls inside with a chance of at least 80 %, whatever the distribution, if it is like
them (split conformal prediction: Lei et al., JASA 113, 2018, 1094-1111, theorem 2.2). It breaks for
other hardware, other layouts, or a changed twin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import ceil, exp
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from twin.answers import Run
from twin.answers.run_store import source_digest
from twin.errors import Problem, UsageError
from twin.evidence.live.cause import StageTime, stages
from twin.evidence.measured.summary import ActionTimes, simulated_actions
from twin.reports import Report
from twin.reports.head import Interval
from twin.reports.table import duration

_LEVEL: Final = 0.8
_AS_THE_STEP: Final = ("step_seconds", "days", "gpu_hours", "cost_usd")
"""Key figures that grow with the step."""
_AS_ITS_INVERSE: Final = (
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "mfu",
    "hfu",
    "model_tflops_per_gpu",
)
"""Those that shrink with it."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The report's intervals."""

    kind: Literal["report"] = "report"

    def intervals(self, report: Report) -> dict[str, Interval | None]:
        """By key figure."""
        return dict(report.intervals)

    def words(self) -> str:
        """In a sentence."""
        return "an interval of its calibration"


@dataclass(frozen=True, slots=True)
class NoInterval:
    """Nothing is known of the error."""

    kind: Literal["none"] = "none"

    def intervals(self, report: Report) -> dict[str, Interval | None]:
        """None for any key figure."""
        return dict.fromkeys(report.kpis)

    def words(self) -> str:
        """In a sentence."""
        return "without an interval: nothing is known of its error"


@dataclass(frozen=True, slots=True)
class Checked:
    """Predictions that were checked before: how far the interval reaches to both sides, as a factor
    above 1, and the digests of their seals."""

    factor: float
    seals: tuple[str, ...]
    kind: Literal["checked"] = "checked"

    def intervals(self, report: Report) -> dict[str, Interval | None]:
        """Of the step, and of what follows from it alone."""
        found: dict[str, Interval | None] = dict.fromkeys(report.kpis)
        for key in (*_AS_THE_STEP, *_AS_ITS_INVERSE):
            value = report.kpis.get(key)
            if value is not None:
                found[key] = (value / self.factor, value * self.factor)
        return found

    def words(self) -> str:
        """In a sentence."""
        return f"an interval of {len(self.seals)} predictions that were checked before"


Basis = Annotated[Calibrated | NoInterval | Checked, Field(discriminator="kind")]


def checked(residuals: Mapping[str, float]) -> Checked | None:
    """The basis that earlier residuals give, by the digests of their seals; None of fewer than
    four, whose interval would have no end."""
    factor = reach(tuple(residuals.values()))
    return None if factor is None else Checked(exp(factor), tuple(residuals))


def reach(residuals: Sequence[float]) -> float | None:
    """How far ln(measured / predicted) lies off, at most, with a chance of 80 %."""
    place = ceil(_LEVEL * (len(residuals) + 1))
    return sorted(map(abs, residuals))[place - 1] if 0 < place <= len(residuals) else None


VERSION: Final = 1
"""Version of the file; it grows when a key changes its meaning or leaves."""

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Span = tuple[_Finite, _Finite]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was predicted, and by what. Two seals of one prediction are the same seal."""

    hash: str
    """Of the scenario, as `twin run` prints it."""
    twin_version: str
    source: str
    """Digest of the twin's code."""
    fidelity: str
    calibration: str
    catalog: str
    """Digest of the catalog numbers that were used."""
    tokens_per_step: int
    steps: int
    """Of the whole run."""
    kpis: Mapping[str, _Finite | None]
    intervals: Mapping[str, _Span | None]
    basis: Basis
    """What the interval of the step time rests on."""
    warnings: tuple[str, ...]
    """Codes of the report's warnings."""
    stages: tuple[StageTime, ...]
    actions: tuple[ActionTimes, ...]
    """Passes, messages and collectives, each by chunk."""


@dataclass(frozen=True, slots=True)
class Seal:
    """A prediction with its date."""

    version: Literal[1]
    digest: str
    """SHA-256 over everything else in the file."""
    name: str
    sealed: str
    """When; ISO 8601, UTC."""
    command: str | None
    prediction: Prediction
    scenario: Mapping[str, Any]
    """Resolved."""

    @property
    def seconds(self) -> float:
        """The predicted seconds of a step."""
        value = self.prediction.kpis["step_seconds"]
        assert value is not None, "a step always has a time"
        return value

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the seconds of a step; None where none was known."""
        return self.prediction.intervals.get("step_seconds")

    @property
    def filename(self) -> str:
        """`DATE-DIGEST-NAME.json`."""
        plain = "".join(one if one.isalnum() else "-" for one in self.name.lower())
        words = "-".join(word for word in plain.split("-") if word)[:60]
        return f"{self.sealed[:10]}-{self.digest[:8]}-{words or 'unnamed'}.json"

    def to_json(self) -> dict[str, Any]:
        """The file's content."""
        return {"kind": "seal"} | _KIND.dump_python(self, mode="json")


_KIND = TypeAdapter(Seal)


def seal(run: Run, basis: Basis | None = None) -> Seal:
    """Seal an answer now. `basis` is what the interval of the step time rests on where the report
    has none (`twin.evidence.live.seal`)."""
    report = run.report
    basis = _basis(report, basis)
    known = report.provenance
    prediction = Prediction(
        hash=report.hash,
        twin_version=known.twin_version,
        source=source_digest(),
        fidelity=known.fidelity,
        calibration=known.calibration,
        catalog=known.catalog.digest,
        tokens_per_step=run.scenario.train.global_batch,
        steps=max(1, round(run.scenario.train.tokens / run.scenario.train.global_batch)),
        kpis=dict(report.kpis),
        intervals=basis.intervals(report),
        basis=basis,
        warnings=tuple(one.code for one in report.warnings),
        stages=stages(run),
        actions=simulated_actions(run.trace),
    )
    unsealed = Seal(
        version=VERSION,
        digest="",
        name=report.name,
        sealed=datetime.now(UTC).isoformat(timespec="seconds"),
        command=known.reproduce,
        prediction=prediction,
        scenario=dict(report.scenario),
    )
    return replace(unsealed, digest=digest_of(unsealed.to_json()))


def _basis(report: Report, basis: Basis | None) -> Basis:
    """The report's own intervals come first."""
    if report.intervals.get("step_seconds") is not None:
        return Calibrated()
    return basis or NoInterval()


def digest_of(document: Mapping[str, Any]) -> str:
    """SHA-256 of a seal's document without its digest: of its JSON text with sorted keys, no
    spaces, ASCII only."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read(data: bytes, place: str) -> Seal:
    """The seal in a file's bytes. Raises `UsageError` where they hold none (TW341), or one that was
    changed (TW342)."""
    try:
        document = json.loads(data, parse_constant=_no_number)
        found = _KIND.validate_python(document)
        changed = digest_of(document) != found.digest
    except (ValueError, ValidationError, RecursionError, TypeError):
        message = f"`{place}` holds no seal that this version knows"
        fix = "`twin run SCENARIO --seal` writes one"
        raise UsageError([Problem("TW341", "", message, fix)]) from None
    if changed:
        message = f"`{place}` was changed after it was sealed: its digest is another"
        fix = "restore the file; a new prediction is sealed with `twin run SCENARIO --seal`"
        raise UsageError([Problem("TW342", "", message, fix)])
    return found


def same(first: Seal, second: Seal) -> bool:
    """Whether two seals say the same of the same scenario by the same code."""
    return asdict(first.prediction) == asdict(second.prediction)


def sentence(one: Seal) -> str:
    """What was sealed, in words."""
    told = f"{duration(one.seconds)} per step"
    if one.interval is not None:
        told += f", {duration(one.interval[0])} to {duration(one.interval[1])} at 80 %"
    return f"{told}, {one.prediction.basis.words()}"


def _no_number(word: str) -> None:
    raise ValueError(word)
