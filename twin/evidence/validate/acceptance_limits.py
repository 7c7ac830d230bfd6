"""What the twin holds itself to on published rows that judge it: one number each, and its limit.

vTrain's tables have bars of their own, and no part in those of training rows: hundreds of rows of
one cluster and one kind of model would outvote all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES, Baseline
from twin.evidence.validate.pairs import RowPair, named
from twin.evidence.validate.score import Errors, Overall, errors, expressed, judged, overall
from twin.evidence.validate.suite import refusal

STEP, PEAK = "step_seconds", "peak_device_bytes"
VTRAIN: Final = "VIA-Research/vTrain"
CALIBRATED: Final = ("A100", "H100", "H800")
"""How names of the GPUs begin whose software is told best."""
NEWER: Final = ("H200", "B200", "B300", "GB200", "GB300")
_KORTHIKANTI: Final = "Korthikanti"
_ITS_MODELS: Final = ("gpt-175b", "gpt-1t")


@dataclass(frozen=True, slots=True)
class AcceptanceLimit:
    """A number that is held to a limit, or to two; all are shares."""

    name: str
    value: float | None
    rows: int
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether it is within; None where there is no number."""
        if self.value is None:
            return None
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    def to_json(self) -> dict[str, Any]:
        """The limit by names."""
        return asdict(self) | {"met": self.met}


def of_gpus(answers: Iterable[RowResult], names: Sequence[str]) -> tuple[RowResult, ...]:
    """Answers to training rows of some GPUs, without vTrain's."""
    return tuple(
        one
        for one in answers
        if one.category == "train_step"
        and one.gpu.startswith(tuple(names))
        and not one.source.startswith(VTRAIN)
    )


def of_vtrain(answers: Iterable[RowResult]) -> tuple[RowResult, ...]:
    """Answers to rows of vTrain's tables."""
    return tuple(one for one in answers if one.source.startswith(VTRAIN))


def steps(answers: Iterable[RowResult]) -> tuple[RowResult, ...]:
    """Answers in seconds of a step to rows that judge."""
    return judged(one for one in answers if one.metric == STEP)


def peaks(answers: Iterable[RowResult]) -> tuple[RowResult, ...]:
    """Answers in bytes at the peak to training rows that judge."""
    return judged(one for one in answers if one.metric == PEAK and one.category == "train_step")


def bars(
    answers: Sequence[RowResult],
    baselines: Mapping[Baseline, Sequence[RowResult]],
    pairs: Sequence[RowPair],
) -> tuple[AcceptanceLimit, ...]:
    """All bars, in the order they are told."""
    return (
        *_vtrain(answers),
        *_korthikanti(answers),
        *_calibrated(answers),
        *_beaten(answers, baselines),
        *_memory(answers),
        *_pairs(pairs),
        *_covered(answers),
        *_refused(answers),
    )


def _vtrain(answers: Sequence[RowResult]) -> Iterable[AcceptanceLimit]:
    for where, limit in (("several nodes", 0.08), ("one node", 0.14)):
        title = f"{VTRAIN} (MICRO 2024), {where}"
        own = errors(steps(one for one in answers if one.source == title))
        yield _bar(f"vTrain, {where}: mean error", own, "mean", at_most=limit)


def _korthikanti(answers: Sequence[RowResult]) -> Iterable[AcceptanceLimit]:
    own = errors(
        steps(
            one
            for one in answers
            if one.source.startswith(_KORTHIKANTI) and one.model in _ITS_MODELS
        )
    )
    yield _bar("Korthikanti, GPT 175B and 1T: largest error", own, "largest", at_most=0.06)
    yield _bar("Korthikanti, GPT 175B and 1T: mean error", own, "mean", at_most=0.04)


def _bar(name: str, own: Errors | None, field: str, at_most: float) -> AcceptanceLimit:
    value = None if own is None else float(getattr(own, field))
    return AcceptanceLimit(name, value, 0 if own is None else own.rows, at_most=at_most)


def _calibrated(answers: Sequence[RowResult]) -> Iterable[AcceptanceLimit]:
    own, newer = of_gpus(answers, CALIBRATED), of_gpus(answers, NEWER)
    share, told = expressed(own), overall(steps(own))
    for gpus, told_of in ((", ".join(CALIBRATED), share), (", ".join(NEWER), expressed(newer))):
        name = f"{gpus}: rows with a known layout expressed"
        yield AcceptanceLimit(name, told_of.value, told_of.rows, None, 0.95)
    rows = 0 if told is None else told.errors.rows
    middle, tail = _families(told)
    yield AcceptanceLimit("A100, H100, H800: median of family medians", middle, rows, at_most=0.08)
    yield AcceptanceLimit(
        "A100, H100, H800: 90th percentile of family medians", tail, rows, at_most=0.20
    )


def _families(told: Overall | None) -> tuple[float | None, float | None]:
    return (None, None) if told is None else (told.median_of_families, told.tail_of_families)


def _beaten(
    answers: Sequence[RowResult], baselines: Mapping[Baseline, Sequence[RowResult]]
) -> Iterable[AcceptanceLimit]:
    """Ours over a baseline's, on the rows that it answers: mean, and median of family medians."""
    for name in BASELINES:
        theirs = steps(of_gpus(baselines.get(name, ()), CALIBRATED))
        ids = {one.id for one in theirs}
        ours = steps(one for one in of_gpus(answers, CALIBRATED) if one.id in ids)
        mine, other = overall(ours), overall(theirs)
        if mine is None or other is None:
            yield AcceptanceLimit(
                f"A100, H100, H800: error over that of `{name}`", None, 0, at_most=1.0
            )
            continue
        worst = max(
            mine.errors.mean / other.errors.mean,
            mine.median_of_families / other.median_of_families,
        )
        title = f"A100, H100, H800: error over that of `{name}` (mean or families, the larger)"
        yield AcceptanceLimit(title, worst, len(ids), at_most=1.0)


def _memory(answers: Sequence[RowResult]) -> Iterable[AcceptanceLimit]:
    own = errors(peaks(answers))
    yield _bar("peak memory: median error", own, "median", at_most=0.08)
    yield _bar("peak memory: largest error", own, "largest", at_most=0.20)


def _pairs(pairs: Sequence[RowPair]) -> Iterable[AcceptanceLimit]:
    judging = [pair for pair in pairs if pair.use == "check"]
    tables = [pair for pair in judging if pair.faster.source.startswith(VTRAIN)]
    others = [pair for pair in judging if not pair.faster.source.startswith(VTRAIN)]
    for name, own in (("vTrain's tables", tables), ("all other sources", others)):
        yield AcceptanceLimit(
            f"A/B pairs, {name}: the faster named", named(own), len(own), None, 0.9
        )


def _covered(answers: Sequence[RowResult]) -> Iterable[AcceptanceLimit]:
    """Intervals that hold, of all that has one, and without vTrain's tables."""
    own = [one for one in (*steps(answers), *peaks(answers)) if one.covered is not None]
    apart = [one for one in own if not one.source.startswith(VTRAIN)]
    for name, judging in (("all rows", own), ("without vTrain's tables", apart)):
        held = sum(bool(one.covered) for one in judging)
        share = held / len(judging) if judging else None
        yield AcceptanceLimit(f"80 % intervals that hold, {name}", share, len(judging), 0.9, 0.7)


def _refused(answers: Sequence[RowResult]) -> Iterable[AcceptanceLimit]:
    """Rows without any prediction, less those whose source leaves out a fact; of all uses, without
    vTrain's tables. A row's answers have its id, and in brackets what they are of."""
    found: dict[str, bool] = {}
    for one in answers:
        if not one.source.startswith(VTRAIN):
            row = one.id.partition("[")[0]
            told = one.predicted is None and refusal(one.reason) != "untold"
            found[row] = found.get(row, True) and told
    share = sum(found.values()) / len(found) if found else None
    name = "rows refused for other reasons than an untold fact"
    yield AcceptanceLimit(name, share, len(found), at_most=0.05)
