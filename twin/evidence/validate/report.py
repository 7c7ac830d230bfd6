"""A dated Markdown page of a validation: limits, families beside both baselines, a scatter plot,
coverage of intervals, the worst rows with their assumptions, rows not expressed, pairs, fitted rows
apart, and the fitted numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from string import Template
from typing import Final

from twin.answers.run_store import unwritable
from twin.evidence.validate import score
from twin.evidence.validate.acceptance_limits import STEP, VTRAIN, peaks, steps
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES
from twin.evidence.validate.free_parameters import FREE, shipped
from twin.evidence.validate.pairs import RowPair
from twin.evidence.validate.score import AnswerGroup, Errors, percent, signed
from twin.evidence.validate.suite import WHY, Use
from twin.evidence.validate.summary import FamilyErrors, Summary, reasons
from twin.reports.table import markdown

_WIDTH, _SIDE, _LEFT, _TOP, _LEGEND = 900, 560, 70, 40, 240
"""CSS pixels: of the picture, of the square that holds dots, and beside and above it."""
_COLOURS: Final = (
    ("#0072B2", "#56B4E9"), ("#C04A00", "#FF7F3F"), ("#00785A", "#2FC99A"), ("#A8407C", "#E39CC8"),
    ("#8A5F00", "#E69F00"), ("#6B6F7B", "#A3A8B4"), ("#1F78A8", "#8FD3F4"), ("#5B4FA2", "#B3A8F0"),
)  # fmt: skip
_MARKS: Final = ("circle", "square", "diamond")
"""The second channel: dots that share a colour differ in shape."""
_BAND: Final = 0.1
"""How far off the band between the dashed lines reaches."""


def scatter(answers: Sequence[RowResult], unit: str, title: str) -> str:
    """The picture of answers in one metric, by GPU."""
    own = [one for one in answers if one.predicted and one.measured]
    low, high = _span([value for one in own for value in (one.predicted, one.measured) if value])
    names = sorted({one.gpu for one in own})
    body = [*_frame(low, high, unit, title), *_diagonals(low, high)]
    for place, name in enumerate(names):
        body += _dots([one for one in own if one.gpu == name], place, low, high)
        body += _key(name, place, sum(one.gpu == name for one in own))
    height = _TOP + _SIDE + 50
    styles = "".join(f".c{n}{{fill:{one[0]}}}" for n, one in enumerate(_COLOURS))
    dark = "".join(f".c{n}{{fill:{one[1]}}}" for n, one in enumerate(_COLOURS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="13"><title>{escape(title)}</title>\n<style>'
        "svg{background:#FFFFFF}text{fill:#31333F}.grid{stroke:#8884;stroke-width:1}"
        ".ideal{stroke:#31333F}.band{stroke:#6B6F7B;stroke-dasharray:5 4}"
        f".dot{{fill-opacity:.75}}{styles}@media (prefers-color-scheme: dark){{"
        "svg{background:#0E1117}text{fill:#FAFAFA}.ideal{stroke:#FAFAFA}.band{stroke:#A3A8B4}"
        f"{dark}}}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Logarithms of the ends of both axes."""
    if not values:
        return 0.0, 1.0
    low, high = log10(min(values)), log10(max(values))
    room = max(0.05 * (high - low), 0.1)
    return low - room, high + room


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + _SIDE * (log10(value) - low) / (high - low)


def _y(value: float, low: float, high: float) -> float:
    return _TOP + _SIDE * (high - log10(value)) / (high - low)


def _frame(low: float, high: float, unit: str, title: str) -> Iterator[str]:
    """Title, grid, and what the axes say."""
    yield f'<text x="{_LEFT}" y="22" font-size="16">{escape(title)}</text>'
    for exponent in range(floor(low), ceil(high) + 1):
        for digit in (1, 2, 5):
            value = digit * 10.0**exponent
            if low <= log10(value) <= high:
                x, y = _x(value, low, high), _y(value, low, high)
                yield f'<path class="grid" d="M{x:.1f} {_TOP}v{_SIDE}M{_LEFT} {y:.1f}h{_SIDE}"/>'
                end = _TOP + _SIDE + 18
                yield f'<text x="{x:.1f}" y="{end}" text-anchor="middle">{value:g}</text>'
                yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    middle, end = _LEFT + _SIDE / 2, _TOP + _SIDE + 40
    yield f'<text x="{middle}" y="{end}" text-anchor="middle">measured, {escape(unit)}</text>'
    up = _TOP + _SIDE / 2
    yield (
        f'<text transform="translate(18 {up}) rotate(-90)" text-anchor="middle">'
        f"predicted, {escape(unit)}</text>"
    )


def _diagonals(low: float, high: float) -> Iterator[str]:
    """Where predicted is measured, and a tenth beside it."""
    for name, off in (("ideal", 0.0), ("band", log10(1.0 + _BAND)), ("band", -log10(1.0 + _BAND))):
        first, last = max(low, low - off), min(high, high - off)
        ends = [(_x(10**at, low, high), _y(10 ** (at + off), low, high)) for at in (first, last)]
        (x, y), (to_x, to_y) = ends
        yield f'<path class="{name}" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'


def _dots(own: Sequence[RowResult], place: int, low: float, high: float) -> Iterator[str]:
    for one in own:
        assert one.predicted is not None, "asked of rows with both"
        assert one.measured is not None, "asked of rows with both"
        x, y = _x(one.measured, low, high), _y(one.predicted, low, high)
        yield _mark(place, x, y, f"{one.id}: {one.predicted:.4g} predicted, {one.measured:.4g}")


def _key(name: str, place: int, rows: int) -> Iterator[str]:
    x, y = _LEFT + _SIDE + 24, _TOP + 12 + 22 * place
    yield _mark(place, x, y, name)
    yield f'<text x="{x + 12}" y="{y + 4}">{escape(name)} ({rows})</text>'


def _mark(place: int, x: float, y: float, words: str) -> str:
    """A dot with words that show where a pointer rests."""
    colour = f'class="dot c{place % len(_COLOURS)}"'
    told = f"<title>{escape(words)}</title>"
    shape = _MARKS[place // len(_COLOURS) % len(_MARKS)] if place >= len(_COLOURS) else "circle"
    if shape == "circle":
        return f'<circle {colour} cx="{x:.1f}" cy="{y:.1f}" r="4">{told}</circle>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    return (
        f'<rect {colour} x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"{turn}>{told}</rect>'
    )


_WORST: Final = 20
"""Rows that are listed with their assumptions."""
_QUANTITY: Final = re.compile(
    r"(?<![`\w.+-])([\w.+-]*\d(?: ?%| ?(?:[KMG]i?B|[munµ]?s|d)\b)[\w.-]*)(?!`)"
)
_NAMED: Final = 3
"""Rows of a reason that are named."""
_USES: Final[tuple[Use, ...]] = ("fit", "near-fit", "check")
LIMIT_COLUMNS: Final = ("Limit", "value", "bound", "rows", "")
ERROR_COLUMNS: Final = ("rows", "median", "mean", "largest", "bias", "in 80 %")
FAMILY_COLUMNS: Final = (*ERROR_COLUMNS, *BASELINES)
PAIR_COLUMNS: Final = ("Faster", "slower", "choice", "values", "measured", "predicted", "named")
_TEMPLATE: Final = Path(__file__).with_name("report.md")
Cells = Iterable[Sequence[str]]


def write(file: Path, summary: Summary) -> None:
    """Write the page, and its picture beside it. Raises UsageError where that is impossible."""
    picture = file.with_suffix(".svg")
    drawn = scatter(steps(summary.answers), "seconds", "Seconds of a step, check rows")
    try:
        page = "".join(f"{_quoted(line)}\n" for line in _page(summary, picture.name).splitlines())
        file.write_text(page, encoding="utf-8")
        picture.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise unwritable(file, error, "--report") from None


def _quoted(line: str) -> str:
    """The line with every quantity as code: a dated page shows them, and nobody computes them
    again."""
    return _QUANTITY.sub(r"`\1`", line)


def _page(summary: Summary, picture: str) -> str:
    """The page; empty sections say so."""
    sections = {
        "limits": _table(LIMIT_COLUMNS, limit_rows(summary)),
        "families": _table(
            ("Source", "model", "GPU", "precision", "metric", *FAMILY_COLUMNS),
            ((*f.group.key, f.group.metric, *family_cells(f)) for f in summary.families()),
        ),
        "keys": "\n\n".join(_by_key(summary)),
        "coverage": _coverage(summary),
        "worst": _worst(summary.answers),
        "refused": _refused(summary.refused),
        "pairs": "\n".join(_pairs(summary.pairs)),
        "seen": "\n\n".join(_seen(summary)),
        "fitted": _fitted(summary.answers),
    }
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        {name: text or "None." for name, text in sections.items()},
        today=datetime.now(UTC).date().isoformat(),
        rows=summary.rows,
        picture=picture,
        numbers=sum(map(len, FREE.values())),
    )


def limit_rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    """Every limit with its value, bound and verdict."""
    verdicts = {True: "met", False: "missed", None: "no rows"}
    for limit in summary.bars:
        low = [f"at least {100 * limit.at_least:.0f} %"] if limit.at_least is not None else []
        high = [f"at most {100 * limit.at_most:.0f} %"] if limit.at_most is not None else []
        bound = ", ".join(low + high)
        yield limit.name, percent(limit.value), bound, str(limit.rows), verdicts[limit.met]


def _error_cells(errors: Errors) -> tuple[str, ...]:
    held = f"{errors.covered} of {errors.intervals}" if errors.intervals else "-"
    shares = map(percent, (errors.median, errors.mean, errors.largest))
    return (str(errors.rows), *shares, signed(errors.bias), held)


def family_cells(family: FamilyErrors) -> tuple[str, ...]:
    """Errors of a family, with the median errors of baselines on the same rows."""
    others = (family.baselines.get(name) for name in BASELINES)
    medians = (percent(errors and errors.median) for errors in others)
    return (*_error_cells(family.group.errors), *medians)


def _by_key(summary: Summary) -> Iterator[str]:
    judging = score.judged(summary.answers)
    for name, key in (("Source", score.source), ("Model", score.model), ("GPU", score.gpu)):
        yield _groups(name, score.grouped(judging, key))


def _groups(name: str, groups: Iterable[AnswerGroup]) -> str:
    rows = ((*group.key, group.metric, *_error_cells(group.errors)) for group in groups)
    return _table((name, "metric", *ERROR_COLUMNS), rows)


def _coverage(summary: Summary) -> str:
    """How often intervals hold, and how wide they are."""
    rows: list[tuple[str, ...]] = []
    judging = {"step time": steps(summary.answers), "peak memory": peaks(summary.answers)}
    for name, group in (
        (n, g) for n, own in judging.items() for g in score.grouped(own, score.gpu)
    ):
        wide = sorted(
            answer.interval[1] / answer.predicted - 1.0
            for answer in group.answers
            if answer.interval is not None and answer.predicted
        )
        errors = group.errors
        if wide:
            share = percent(errors.covered / errors.intervals)
            held = f"{errors.covered} of {errors.intervals}"
            rows.append((name, *group.key, held, share, signed(wide[len(wide) // 2])))
    return _table(("Metric", "GPU", "hold", "share", "reach upwards, median"), rows)


def _worst(answers: Sequence[RowResult]) -> str:
    judging = sorted(score.judged(answers), key=lambda answer: -abs(answer.error or 0.0))
    rows = (
        (a.id, a.metric, f"{a.predicted:.4g}", f"{a.measured:.4g}", signed(a.error), a.stack or "-",
         "; ".join(a.assumed) or "-")
        for a in judging[:_WORST]
    )  # fmt: skip
    return _table(("Row", "metric", "predicted", "measured", "error", "stack", "assumed"), rows)


def _refused(refused: Sequence[RowResult]) -> str:
    found = reasons(refused)
    rows = (
        (r["reason"], WHY[r["why"]], r["category"], str(len(r["rows"])), _some(r["rows"]))
        for r in found
    )
    return _table(("Reason", "is", "category", "rows", "such as"), rows) if found else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def pair_rows(pairs: Iterable[RowPair]) -> Iterator[tuple[str, ...]]:
    """Pairs, wrongly named ones first; by how much the faster one is faster."""
    for pair in sorted(pairs, key=lambda pair: pair.named):
        shares = percent(pair.measured), percent(pair.predicted)
        named = "yes" if pair.named else "no"
        yield pair.faster.id, pair.slower.id, pair.choice, " / ".join(pair.values), *shares, named


def _pairs(pairs: Sequence[RowPair]) -> Iterator[str]:
    """Pairs that judge; of vTrain's hundreds only wrongly named ones. Then counts of the others."""
    judging = [pair for pair in pairs if pair.use == "check"]
    if judging:
        good = sum(pair.named for pair in judging)
        shown = [p for p in judging if not (p.named and p.faster.source.startswith(VTRAIN))]
        yield f"Of {len(judging)} pairs of check rows the faster is named in {good}. Values are the"
        yield "faster row's, then the slower row's; shares are by how much the faster is faster."
        if len(shown) < len(judging):
            yield f"Not listed: {len(judging) - len(shown)} of vTrain's tables, named right."
        yield ""
        yield _table(PAIR_COLUMNS, pair_rows(shown))
    for use in ("near-fit", "fit"):
        own = [pair.named for pair in pairs if pair.use == use]
        if own:
            yield from ("", f"Among `{use}` rows: {sum(own)} of {len(own)}.")


def _seen(summary: Summary) -> Iterator[str]:
    for use in _USES[:2]:
        groups = score.grouped(score.judged(summary.answers, use), score.category)
        yield _groups(f"`{use}`", groups)
    if summary.left_out:
        yield _groups("left out of its fit", score.grouped(summary.left_out, score.category))


def _fitted(answers: Sequence[RowResult]) -> str:
    """Numbers of calibration profiles, and the rows of those profiles."""
    own = [answer for answer in answers if answer.metric == STEP and answer.error is not None]
    uses = {use: Counter(a.calibration for a in own if a.use == use) for use in _USES}
    rows: list[tuple[str, ...]] = []
    for gpu, free in ((gpu, free) for gpu, numbers in FREE.items() for free in numbers):
        counts = (str(sum(uses[use][name] for name in free.profiles)) for use in _USES)
        prior = f"{free.prior:.4g}, {free.spread:.0%}"
        names = ", ".join(free.profiles + free.software)
        rows.append((gpu, free.path, f"{shipped(free):.4g}", prior, names, *counts))
    return _table(("GPU", "number", "value", "prior", "profiles", *_USES), rows)


def _table(header: Sequence[str], rows: Cells) -> str:
    return "\n".join(markdown(header, ([cell.replace("|", "/") for cell in row] for row in rows)))
