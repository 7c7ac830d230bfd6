"""A dated page of a validation: bars, families beside both baselines, a picture, what the intervals
held, the worst rows with what was assumed of them, rows that are not expressed, pairs, fitted rows
apart, and the numbers that were fitted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from twin.errors import Problem, UsageError
from twin.evidence.validate import score
from twin.evidence.validate.answer import Answer
from twin.evidence.validate.bars import STEP, VTRAIN, Bar, peaks, steps
from twin.evidence.validate.baselines import BASELINES
from twin.evidence.validate.free import FREE, shipped
from twin.evidence.validate.pairs import Pair
from twin.evidence.validate.row import Use
from twin.evidence.validate.scatter import scatter
from twin.evidence.validate.score import Errors, Group
from twin.evidence.validate.summary import Summary, reasons

_WORST: Final = 20
"""Rows that are told with what was assumed of them."""
_QUANTITY: Final = re.compile(
    r"(?<![`\w.+-])([\w.+-]*\d(?: ?%| ?(?:[KMG]i?B|[munµ]?s|d)\b)[\w.-]*)(?!`)"
)
_NAMED: Final = 3
"""Rows of a reason that are named."""


def write(file: Path, summary: Summary) -> None:
    """Write the page, and its picture beside it. Raises UsageError where that is impossible."""
    picture = file.with_suffix(".svg")
    drawn = scatter(steps(summary.answers), "seconds", "Seconds of a step, check rows")
    try:
        page = "".join(f"{_quoted(line)}\n" for line in _lines(summary, picture.name))
        file.write_text(page, encoding="utf-8")
        picture.write_text(drawn, encoding="utf-8")
    except OSError as error:
        message = f"`{file}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW063", "--report", message)]) from None


def _quoted(line: str) -> str:
    """The line with every quantity as code: a dated page shows them, and nobody computes them
    again."""
    return _QUANTITY.sub(r"`\1`", line)


def percent(share: float | None) -> str:
    """A share in percent; none is a dash."""
    return "-" if share is None else f"{100.0 * share:.1f} %"


def signed(share: float | None) -> str:
    """The same with its sign."""
    return "-" if share is None else f"{100.0 * share + 0.0:+.1f} %"


def limits(bar: Bar) -> str:
    """What a bar has to stay within."""
    low = [f"at least {100 * bar.at_least:.0f} %"] if bar.at_least is not None else []
    high = [f"at most {100 * bar.at_most:.0f} %"] if bar.at_most is not None else []
    return ", ".join(low + high)


def _lines(summary: Summary, picture: str) -> Iterator[str]:
    today = datetime.now(UTC).date().isoformat()
    yield f"# Published clusters, reproduced: {today}"
    yield ""
    yield f"Written by `twin validate` from {summary.rows} rows. Only rows that no fit has seen"
    yield "(`use: check`) judge; a family is what shares source, model, GPU and precision."
    yield from _section("Bars", _bars(summary.bars))
    yield from ("", f"![Predicted against measured seconds of a step]({picture})")
    yield ""
    yield "Each dot is a check row; the line is where both are equal, the dashed ones a tenth off."
    yield from _section("By family, the worst first", _families(summary))
    yield from _section("By source, model and GPU", _keys(summary))
    yield from _section("What the intervals held", _coverage(summary))
    yield from _section("The worst rows, and what was assumed of them", _worst(summary.answers))
    yield from _section("Not expressed, and why", _refused(summary.refused))
    yield from _section("Which of two plans is faster", _pairs(summary.pairs))
    yield from _section("Rows that a fit has seen, or that lie near those", _seen(summary))
    yield from _section("What was fitted on steps", _fitted(summary.answers))


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    own = tuple(lines)
    yield from ("", f"## {title}", "", *(own or ("None.",)))


def _bars(bars: Sequence[Bar]) -> Iterator[str]:
    words = {True: "met", False: "**missed**", None: "no rows"}
    rows = ((one.name, percent(one.value), limits(one), str(one.rows), words[one.met])
            for one in bars)  # fmt: skip
    yield from _table(("Bar", "value", "limit", "rows", ""), rows)


_USES: Final[tuple[Use, ...]] = ("fit", "near-fit", "check")
_ERRORS: Final = ("rows", "median", "mean", "largest", "bias", "in `80 %`")


def _cells(one: Errors) -> tuple[str, ...]:
    held = f"{one.covered} of {one.intervals}" if one.intervals else "-"
    return (
        str(one.rows), percent(one.median), percent(one.mean), percent(one.largest),
        signed(one.bias), held,
    )  # fmt: skip


def _families(summary: Summary) -> Iterator[str]:
    """Errors by family, with the median errors of baselines on the same rows."""
    names = ("Source", "model", "GPU", "precision", "metric")
    rows = (
        (
            *one.group.key,
            one.group.metric,
            *_cells(one.group.errors),
            *(percent(own and own.median) for own in (one.baselines.get(b) for b in BASELINES)),
        )
        for one in summary.families()
    )
    yield from _table((*names, *_ERRORS, *BASELINES), rows)


def _keys(summary: Summary) -> Iterator[str]:
    judging = score.judged(summary.answers)
    for name, key in (("Source", score.source), ("Model", score.model), ("GPU", score.gpu)):
        yield from _groups((name, "metric"), score.grouped(judging, key))
        yield ""


def _groups(names: Sequence[str], groups: Iterable[Group]) -> Iterator[str]:
    rows = ((*group.key, group.metric, *_cells(group.errors)) for group in groups)
    yield from _table((*names, *_ERRORS), rows)


def _coverage(summary: Summary) -> Iterator[str]:
    """How often intervals hold, and how wide they are."""
    rows: list[tuple[str, ...]] = []
    for name, own in (
        ("step time", steps(summary.answers)),
        ("peak memory", peaks(summary.answers)),
    ):
        for group in score.grouped(own, score.gpu):
            wide = sorted(
                one.interval[1] / one.predicted - 1.0
                for one in group.answers
                if one.interval is not None and one.predicted
            )
            errors = group.errors
            if wide:
                share = percent(errors.covered / errors.intervals)
                held = f"{errors.covered} of {errors.intervals}"
                rows.append((name, *group.key, held, share, signed(wide[len(wide) // 2])))
    yield from _table(("Metric", "GPU", "hold", "share", "reach upwards, median"), rows)


def _worst(answers: Sequence[Answer]) -> Iterator[str]:
    judging = sorted(score.judged(answers), key=lambda one: -abs(one.error or 0.0))
    rows = (
        (one.id, one.metric, f"{one.predicted:.4g}", f"{one.measured:.4g}", signed(one.error),
         one.stack or "-", "; ".join(one.assumed) or "-")
        for one in judging[:_WORST]
    )  # fmt: skip
    yield from _table(("Row", "metric", "predicted", "measured", "error", "stack", "assumed"), rows)


def _refused(refused: Sequence[Answer]) -> Iterator[str]:
    told = reasons(refused)
    rows = ((one["reason"], one["category"], str(len(one["rows"])), _some(one["rows"]))
            for one in told)  # fmt: skip
    if told:
        yield from _table(("Reason", "category", "rows", "such as"), rows)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _pairs(pairs: Sequence[Pair]) -> Iterator[str]:
    """Pairs that judge, those that are named wrongly first; then how others came out. Of vTrain's
    tables, which have hundreds, only what is wrong."""
    judging = [pair for pair in pairs if pair.use == "check"]
    if judging:
        good = sum(pair.named for pair in judging)
        shown = [one for one in judging if not (one.named and one.faster.source.startswith(VTRAIN))]
        yield f"Of {len(judging)} pairs of check rows the faster is named in {good}. Beside a"
        yield "choice stands what the faster had, then the slower; then by how much it is faster."
        if len(shown) < len(judging):
            yield f"Not listed: {len(judging) - len(shown)} of vTrain's tables, named right."
        yield ""
        rows = (
            (pair.faster.id, pair.slower.id, pair.choice, " / ".join(pair.values),
             percent(pair.measured), percent(pair.predicted), "yes" if pair.named else "**no**")
            for pair in sorted(shown, key=lambda pair: pair.named)
        )  # fmt: skip
        names = ("Faster", "slower", "choice", "values", "measured", "predicted", "named")
        yield from _table(names, rows)
    for use in ("near-fit", "fit"):
        own = [pair.named for pair in pairs if pair.use == use]
        if own:
            yield from ("", f"Among `{use}` rows: {sum(own)} of {len(own)}.")


def _seen(summary: Summary) -> Iterator[str]:
    uses: tuple[Use, ...] = ("fit", "near-fit")
    for use in uses:
        groups = score.grouped(score.judged(summary.answers, use), score.category)
        yield from _table((f"`{use}`", "metric", *_ERRORS), _kinds(groups))
        yield ""
    left_out = score.grouped(summary.left_out, score.category)
    if left_out:
        yield from _table(("left out of its fit", "metric", *_ERRORS), _kinds(left_out))


def _fitted(answers: Sequence[Answer]) -> Iterator[str]:
    """Numbers of calibration profiles, and the rows of those profiles."""
    steps = [one for one in answers if one.metric == STEP and one.error is not None]
    uses = {use: Counter(one.calibration for one in steps if one.use == use) for use in _USES}
    rows: list[tuple[str, ...]] = []
    for gpu, numbers in FREE.items():
        for one in numbers:
            counts = (str(sum(uses[use][name] for name in one.profiles)) for use in _USES)
            prior = f"{one.prior:.4g}, {one.spread:.0%}"
            names = ", ".join(one.profiles)
            rows.append((gpu, one.path, f"{shipped(one):.4g}", prior, names, *counts))
    yield f"{len(rows)} numbers, in SI units; priors with the spread of their logarithm. Those of"
    yield "A100 saw ten times of one layer, too. Rows are all steps of the profiles: those in bf16"
    yield "tell no number of FP8, those without experts none that brings tokens in order."
    yield ""
    yield from _table(("GPU", "number", "value", "prior", "profiles", *_USES), rows)


def _kinds(groups: Iterable[Group]) -> Iterator[tuple[str, ...]]:
    return ((*group.key, group.metric, *_cells(group.errors)) for group in groups)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
