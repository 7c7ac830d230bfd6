"""All that is made of answers to a suite: errors, baselines, pairs and bars, as one noun that
tables, the JSON document and the page read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twin.evidence.validate import baselines, score
from twin.evidence.validate.answer import Answer
from twin.evidence.validate.bars import (
    CALIBRATED,
    NEWER,
    STEP,
    Bar,
    bars,
    of_gpus,
    of_vtrain,
    peaks,
    steps,
)
from twin.evidence.validate.baselines import BASELINES, Baseline
from twin.evidence.validate.intervals import with_intervals
from twin.evidence.validate.pairs import Pair, named, pairs
from twin.evidence.validate.row import Row, Use
from twin.evidence.validate.score import Errors, Group, Key
from twin.reports.interval import Known

USES: tuple[Use, ...] = ("check", "near-fit", "fit")


@dataclass(frozen=True, slots=True)
class Family:
    """Near copies in one metric: errors of the twin and of the baselines on the same rows."""

    group: Group
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
    answers: tuple[Answer, ...]
    baselines: Mapping[Baseline, tuple[Answer, ...]]
    pairs: tuple[Pair, ...]
    left_out: tuple[Answer, ...]

    @property
    def bars(self) -> tuple[Bar, ...]:
        """What the twin holds itself to."""
        return bars(self.answers, self.baselines, self.pairs)

    @property
    def refused(self) -> tuple[Answer, ...]:
        """Rows that are not expressed, of all uses."""
        return tuple(one for one in self.answers if one.status == "not_expressible")

    def part(self, keep: Callable[[Answer], bool]) -> Summary:
        """The same of some answers only; of pairs those that have both."""
        own = tuple(one for one in self.answers if keep(one))
        return Summary(
            len({one.id for one in own}),
            own,
            {name: tuple(filter(keep, theirs)) for name, theirs in self.baselines.items()},
            tuple(pair for pair in self.pairs if keep(pair.faster) and keep(pair.slower)),
            tuple(filter(keep, self.left_out)),
        )

    def families(self, use: Use = "check") -> tuple[Family, ...]:
        """By metric and family, the worst first."""
        groups = score.grouped(score.judged(self.answers, use), score.family)
        theirs: list[tuple[Baseline, Mapping[str, Answer]]] = [
            (name, _by_row(own)) for name, own in self.baselines.items()
        ]
        return tuple(Family(group, _of_group(group, theirs)) for group in groups)

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
            "left_out": _groups(self.left_out, score.category, "category", "fit"),
        }

    def _by_metric(self, use: Use) -> dict[str, Any]:
        found: dict[str, list[Answer]] = {}
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

    def _part(self, choose: Callable[[Iterable[Answer]], tuple[Answer, ...]]) -> dict[str, Any]:
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
    rows: Sequence[Row], answers: Iterable[Answer], told: Known, left_out: Iterable[Answer] = ()
) -> Summary:
    """What a suite came to. `told` are the residuals that intervals and baselines know."""
    own = with_intervals(rows, answers, told)
    fitted = baselines.known(told.residuals)
    asked = [one for one in own if one.metric == STEP and one.measured is not None]
    others: dict[Baseline, tuple[Answer, ...]] = {
        name: baselines.answers(name, asked, fitted) for name in BASELINES
    }
    apart = tuple(replace(one, predicted=one.left_out) for one in left_out if one.left_out)
    return Summary(len(rows), own, others, pairs(rows, own), apart)


def reasons(refused: Iterable[Answer]) -> list[dict[str, Any]]:
    """Why rows are not expressed, the most frequent first, with the rows of each."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in refused:
        found.setdefault((one.category, one.reason), []).append(one.id)
    told = [
        {"category": category, "reason": reason, "rows": ids}
        for (category, reason), ids in found.items()
    ]
    return sorted(told, key=lambda one: (-len(one["rows"]), one["category"], one["reason"]))


def _of_group(
    group: Group, baselines: Sequence[tuple[Baseline, Mapping[str, Answer]]]
) -> dict[Baseline, Errors | None]:
    """Errors of baselines on the rows of a group; of steps only."""
    if group.metric != STEP:
        return {}
    return {
        name: score.errors(own[one.id] for one in group.answers if one.id in own)
        for name, own in baselines
    }


def _by_row(answers: Iterable[Answer]) -> dict[str, Answer]:
    return {one.id: one for one in answers}


def _groups(
    answers: Iterable[Answer], key: Callable[[Answer], Key], name: str, use: Use = "check"
) -> list[dict[str, Any]]:
    groups = score.grouped(score.judged(answers, use), key)
    return [
        {name: group.key[0], "metric": group.metric, **group.errors.to_json()} for group in groups
    ]
