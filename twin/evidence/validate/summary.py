"""All results of a suite: errors, baselines, pairs and limits, which tables, the JSON document and
the page read; and the overview in a sentence and a dozen lines.

Only rows that no fit has seen judge. Rows of kernels and of collectives were all seen, so their
line is predicted by fits without their row (`twin.evidence.validate.leave_one_out`), where such
fits were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from twin.evidence.validate import baselines, score
from twin.evidence.validate.acceptance_limits import (
    CALIBRATED,
    NEWER,
    PEAK,
    STEP,
    AcceptanceLimit,
    bars,
    of_gpus,
    of_vtrain,
    peaks,
    steps,
)
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES, Baseline
from twin.evidence.validate.intervals import with_intervals
from twin.evidence.validate.pairs import RowPair, named, pairs
from twin.evidence.validate.score import TAIL, AnswerGroup, Errors, Key, Overall, Share, percent
from twin.evidence.validate.suite import PublishedRow, Use, refusal
from twin.reports.interval import Known

USES: tuple[Use, ...] = ("check", "near-fit", "fit")


@dataclass(frozen=True, slots=True)
class FamilyErrors:
    """Near copies in one metric: errors of the twin and of the baselines on the same rows."""

    group: AnswerGroup
    baselines: Mapping[Baseline, Errors | None]

    def to_json(self) -> dict[str, Any]:
        """The family by names."""
        names = ("source", "model", "gpu", "precision")
        others = {name: one and one.to_json() for name, one in self.baselines.items()}
        return {
            **dict(zip(names, self.group.key, strict=True)),
            "metric": self.group.metric,
            **self.group.errors.to_json(),
            "baselines": others,
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """What a suite came to. `answers` have intervals; `left_out` are those that were predicted by a
    fit without their row."""

    rows: int
    answers: tuple[RowResult, ...]
    baselines: Mapping[Baseline, tuple[RowResult, ...]]
    pairs: tuple[RowPair, ...]
    left_out: tuple[RowResult, ...]

    @property
    def bars(self) -> tuple[AcceptanceLimit, ...]:
        """What the twin holds itself to."""
        return bars(self.answers, self.baselines, self.pairs)

    @property
    def refused(self) -> tuple[RowResult, ...]:
        """Rows that are not expressed, of all uses."""
        return tuple(one for one in self.answers if one.status == "not_expressible")

    def part(self, keep: Callable[[RowResult], bool]) -> Summary:
        """The same of some answers only; of pairs those that have both."""
        own = tuple(one for one in self.answers if keep(one))
        return Summary(
            len({one.id for one in own}),
            own,
            {name: tuple(filter(keep, theirs)) for name, theirs in self.baselines.items()},
            tuple(pair for pair in self.pairs if keep(pair.faster) and keep(pair.slower)),
            tuple(filter(keep, self.left_out)),
        )

    def families(self, use: Use = "check") -> tuple[FamilyErrors, ...]:
        """By metric and family, the worst first."""
        groups = score.grouped(score.judged(self.answers, use), score.family)
        theirs: list[tuple[Baseline, Mapping[str, RowResult]]] = [
            (name, _by_row(own)) for name, own in self.baselines.items()
        ]
        return tuple(FamilyErrors(group, _of_group(group, theirs)) for group in groups)

    def to_json(self) -> dict[str, Any]:
        """The section `summary` of the JSON document."""
        return {
            "rows": self.rows,
            "answers": dict(Counter(one.status for one in self.answers)),
            "bars": [bar.to_json() for bar in self.bars],
            "metrics": {use: self._by_metric(use) for use in USES},
            "training": self._training(),
            "families": [one.to_json() for one in self.families()],
            "sources": _groups(self.answers, score.source, "source"),
            "gpus": _groups(self.answers, score.gpu, "gpu"),
            "models": _groups(self.answers, score.model, "model"),
            "not_expressed": reasons(self.refused),
            "pairs": {use: self._pairs(use) for use in USES},
            "sources_left_out": {
                which: [group.to_json() for group in source_left_out(self, all_uses=which == "all")]
                for which in ("check", "all")
            },
            "left_out": _groups(self.left_out, score.category, "category", "fit"),
        }

    def _by_metric(self, use: Use) -> dict[str, Any]:
        found: dict[str, list[RowResult]] = {}
        for one in score.judged(self.answers, use):
            found.setdefault(one.metric, []).append(one)
        told = {metric: score.overall(own) for metric, own in found.items()}
        return {metric: one.to_json() for metric, one in told.items() if one is not None}

    def _training(self) -> dict[str, Any]:
        """Training rows by what their GPUs' software is known of; vTrain's tables apart."""
        told = {
            "calibrated": self._part(lambda own: of_gpus(own, CALIBRATED)),
            "newer": self._part(lambda own: of_gpus(own, NEWER)),
            "vtrain": self._part(of_vtrain),
        }
        memory = score.errors(peaks(self.answers))
        return {**told, "peak_memory": memory and memory.to_json()}

    def _part(
        self, choose: Callable[[Iterable[RowResult]], tuple[RowResult, ...]]
    ) -> dict[str, Any]:
        own = choose(self.answers)
        ours = score.overall(steps(own))
        theirs = {
            name: score.overall(steps(choose(self.baselines.get(name, ())))) for name in BASELINES
        }
        return {
            "expressed": score.expressed(own).to_json(),
            "twin": ours and ours.to_json(),
            "baselines": {name: one and one.to_json() for name, one in theirs.items()},
        }

    def _pairs(self, use: Use) -> dict[str, Any]:
        own = [pair for pair in self.pairs if pair.use == use]
        told = [pair.to_json() for pair in own]
        return {"pairs": len(own), "share_named": named(own), "list": told}


def summarize(
    rows: Sequence[PublishedRow],
    answers: Iterable[RowResult],
    told: Known,
    left_out: Iterable[RowResult] = (),
) -> Summary:
    """What a suite came to. `told` are the residuals that intervals and baselines know."""
    own = with_intervals(answers, told)
    fitted = baselines.known(told.residuals)
    asked = [one for one in own if one.metric == STEP and one.measured is not None]
    others: dict[Baseline, tuple[RowResult, ...]] = {
        name: baselines.answers(name, asked, fitted) for name in BASELINES
    }
    apart = tuple(replace(one, predicted=one.left_out) for one in left_out if one.left_out)
    return Summary(len(rows), own, others, pairs(rows, own), apart)


def reasons(refused: Iterable[RowResult]) -> list[dict[str, Any]]:
    """Why rows are not expressed, the most frequent first, with the rows of each."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in refused:
        found.setdefault((one.category, one.reason), []).append(one.id)
    told = [
        {"category": category, "reason": reason, "why": refusal(reason), "rows": ids}
        for (category, reason), ids in found.items()
    ]
    return sorted(told, key=lambda one: (-len(one["rows"]), one["category"], one["reason"]))


def _of_group(
    group: AnswerGroup, baselines: Sequence[tuple[Baseline, Mapping[str, RowResult]]]
) -> dict[Baseline, Errors | None]:
    """Errors of baselines on the rows of a group; of steps only."""
    if group.metric != STEP:
        return {}
    return {
        name: score.errors(own[one.id] for one in group.answers if one.id in own)
        for name, own in baselines
    }


def _by_row(answers: Iterable[RowResult]) -> dict[str, RowResult]:
    return {one.id: one for one in answers}


def _groups(
    answers: Iterable[RowResult], key: Callable[[RowResult], Key], name: str, use: Use = "check"
) -> list[dict[str, Any]]:
    groups = score.grouped(score.judged(answers, use), key)
    return [
        {name: group.key[0], "metric": group.metric, **group.errors.to_json()} for group in groups
    ]


Choose = Callable[[RowResult], bool]
_BLACKWELL: Final = ("B200", "B300", "GB200", "GB300")
COLUMNS: Final = (
    "Held-out", "rows", "expressed", "median", "9 in 10", "largest", *BASELINES, "inside interval",
)  # fmt: skip
"""What the cells of a line hold."""


@dataclass(frozen=True, slots=True)
class OverviewLine:
    """Answers of one kind that judge: how many could be `expressed`, of all; their errors, over
    families, too; what nine of ten errors are `within`; the median errors of the baselines."""

    name: str
    expressed: Share
    overall: Overall
    within: float
    others: tuple[float | None, ...]

    def cells(self) -> tuple[str, ...]:
        """The line as text, column by column."""
        one = self.overall.errors
        return (
            self.name, f"{one.rows:,}", percent(self.expressed.value), percent(one.median),
            percent(self.within), percent(one.largest), *map(percent, self.others), held(one),
        )  # fmt: skip


def held(one: Errors) -> str:
    """How many intervals hold what was measured."""
    return f"{one.covered:,} of {one.intervals:,}" if one.intervals else "-"


def line(name: str, summary: Summary) -> OverviewLine | None:
    """The line of all answers of a summary that judge; None where none does."""
    asked = [one for one in summary.answers if one.use == "check"]
    theirs = (score.errors(score.judged(summary.baselines.get(b, ()))) for b in BASELINES)
    return _line(name, asked, score.judged(asked), [one and one.median for one in theirs])


def _left_out(name: str, summary: Summary, category: str) -> OverviewLine | None:
    """The line of what fits say that have not seen the rows."""
    asked = [one for one in summary.answers if one.category == category]
    own = [one for one in summary.left_out if one.category == category]
    return _line(name, asked, own, [None] * len(BASELINES))


def _line(
    name: str, asked: Sequence[RowResult], own: Sequence[RowResult], others: Sequence[float | None]
) -> OverviewLine | None:
    overall = score.overall(own)
    if overall is None:
        return None
    share = Share(len({one.id for one in own}), len({one.id for one in asked}))
    sizes = [abs(one.error) for one in own if one.error is not None]
    return OverviewLine(name, share, overall, float(np.quantile(sizes, TAIL)), tuple(others))


def lines(summary: Summary) -> tuple[OverviewLine, ...]:
    """Steps by GPU, vTrain's tables apart; all else by what it is."""
    found = [line(name, summary.part(choose)) for name, choose in _CHOICES]
    found += [_left_out(name, summary, category) for name, category in _LEFT_OUT]
    return tuple(one for one in found if one is not None)


def sentence(summary: Summary) -> str:
    """How far the steps of a summary are missed, as a planner asks."""
    found = line("", summary.part(_is_step))
    if found is None:
        return "None of these published rows is a held-out training step."
    one = found.overall.errors
    told = (
        f"{one.rows:,} held-out published training steps: median error {percent(one.median)}; "
        f"{percent(found.overall.median_of_families)} over their {found.overall.families} families "
        "of near copies"
    )
    if one.intervals:
        told += f"; {percent(one.covered / one.intervals)} lie inside their 80 % interval"
    return f"{told}."


def _is_step(one: RowResult) -> bool:
    return one.metric == STEP


def _of_vtrain(one: RowResult) -> bool:
    return bool(of_vtrain((one,)))


def _steps_on(*gpus: str) -> Choose:
    return lambda one: _is_step(one) and one.gpu.startswith(gpus) and not _of_vtrain(one)


_CHOICES: Final[tuple[tuple[str, Choose], ...]] = (
    ("Training steps", _is_step),
    ("on A100, of vTrain's tables", lambda one: _is_step(one) and _of_vtrain(one)),
    ("on A100, of all other sources", _steps_on("A100")),
    ("on H100", _steps_on("H100")),
    ("on H800", _steps_on("H800")),
    ("on H200", _steps_on("H200")),
    ("on B200, B300, GB200, GB300", _steps_on(*_BLACKWELL)),
    ("Peak memory", lambda one: one.metric == PEAK),
    ("Weight updates", lambda one: one.metric == "update_seconds"),
    ("Iterations of RL", lambda one: one.metric == "iteration_seconds"),
)
_LEFT_OUT: Final = (
    ("Kernels, left out of their fit", "kernel"),
    ("Collectives, left out of their fit", "collective"),
)


@dataclass(frozen=True, slots=True)
class Centre:
    """Over families: median of |error|, what nine of ten stay below, and the mean with its sign."""

    median: float
    tail: float
    bias: float


@dataclass(frozen=True, slots=True)
class CorrectedGroup:
    """Training rows of a group, each corrected by what all other sources tell. `centres`: of the
    physical answer, the corrected one, and the baselines; `covered` rows lie in their interval."""

    name: str
    families: int
    rows: int
    centres: Mapping[str, Centre | None]
    covered: int

    def to_json(self) -> dict[str, Any]:
        """The numbers by name."""
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """The line as text, column by column."""
        ours = (self.centres["physics"], self.centres["corrected"])
        numbers = [
            cell for c in ours if c for cell in map(score.percent, (c.median, c.tail, c.bias))
        ]
        theirs = (self.centres[name] for name in BASELINES)
        told = [score.percent(c and c.median) for c in theirs]
        held = score.percent(self.covered / self.rows)
        return (self.name, str(self.families), str(self.rows), *numbers, *told, held)


LEFT_OUT_COLUMNS: Final = (
    "Source left out", "families", "rows", "physics", "9 in 10", "bias", "corrected", "9 in 10",
    "bias", *BASELINES, "inside interval",
)  # fmt: skip
_FEWEST_ROWS: Final = 15
"""Rows below which a group is not told."""


def source_left_out(summary: Summary, *, all_uses: bool = False) -> tuple[CorrectedGroup, ...]:
    """Steps of training rows, physical beside corrected, by GPU, model, software and regime;
    vTrain's tables, rows of one cluster, are a group of their own."""
    own = [one for one in summary.answers if _is_step(one) and one.expected and one.measured]
    own = [one for one in own if all_uses or one.use == "check"]
    rest = [one for one in own if not _of_vtrain(one)]
    groups: dict[str, list[RowResult]] = {"all": rest, "vTrain's tables": list(of_vtrain(own))}
    for one in rest:
        newer = one.gpu.startswith(_BLACKWELL)
        dense = "mixture" if one.experts else "dense"
        for name in (
            "GPU: Blackwell" if newer else "GPU: A100, H100, H800, H200",
            f"model: {dense}",
            f"software: {one.software or 'none'}",
            f"regime: {one.regime}",
        ):
            groups.setdefault(name, []).append(one)
    others: dict[Baseline, Mapping[str, RowResult]] = {
        name: _by_row(theirs) for name, theirs in summary.baselines.items()
    }
    shown = list(groups)[:2] + sorted(list(groups)[2:])
    return tuple(
        _corrected(name, groups[name], others)
        for name in shown
        if len(groups[name]) >= _FEWEST_ROWS
    )


def _corrected(
    name: str, own: Sequence[RowResult], others: Mapping[Baseline, Mapping[str, RowResult]]
) -> CorrectedGroup:
    centres = {
        "physics": _centre(own),
        "corrected": _centre([replace(one, predicted=one.expected) for one in own]),
        **{
            baseline: _centre([theirs[one.id] for one in own if one.id in theirs])
            for baseline, theirs in others.items()
        },
    }
    families = len({one.family for one in own})
    return CorrectedGroup(name, families, len(own), centres, sum(bool(o.covered) for o in own))


def _centre(own: Sequence[RowResult]) -> Centre | None:
    groups = score.grouped(own, score.family)
    if not groups:
        return None
    medians = [group.errors.median for group in groups]
    bias = float(np.mean([group.errors.bias for group in groups]))
    return Centre(float(np.median(medians)), float(np.quantile(medians, TAIL)), bias)
