"""Answers in files: the shipped answers, predicted once; tables of answers; scenarios of rows.

`twin validate --answers FILE` writes an answers file. The shipped one is what `twin validate
--shipped` and the app's page show. Answers that agree in all words (source, model, GPU, stack,
reason, ...) are one group, and each is a line of its numbers, to six digits. `made_from` is a
digest of everything that answers follow from; where it differs from this twin's they are older.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

from twin.answers.csv_text import to_csv
from twin.answers.run_store import SOURCE, digest_of, unwritable
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES, STEP, Baseline
from twin.evidence.validate.pairs import RowPair, both
from twin.evidence.validate.scenario_parts import leaves
from twin.evidence.validate.steps import settled, text_of, write_scenario
from twin.evidence.validate.suite import SHIPPED, PublishedRow
from twin.evidence.validate.summary import Summary
from twin.evidence.validate.training import express
from twin.loading.files import shipped_folder

_COLUMNS: Final[tuple[str, ...]] = (
    "id", "category", "use", "source", "model", "gpu", "gpus", "precision", "stack", "metric",
    "status", "predicted", "measured", "error", "low", "high", "expected", *BASELINES, "left_out",
    "software", "regime", "reproducible", "reason", "assumed",
)  # fmt: skip
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._+-]+")


def write_table(file: Path, summary: Summary) -> None:
    """Write all answers as a table (CSV). Raises UsageError where that is impossible."""
    others = {name: {one.id: one for one in own} for name, own in summary.baselines.items()}
    left_out = {(one.id, one.metric): one.predicted for one in summary.left_out}
    rows: list[list[Any]] = []
    for one in summary.answers:
        said: dict[str, Any] = one.to_json() | {"assumed": "; ".join(one.assumed)}
        if one.interval is not None:
            said |= {"low": one.interval[0], "high": one.interval[1]}
        for name, own in others.items() if one.metric == "step_seconds" else ():
            said[name] = own[one.id].predicted if one.id in own else None
        said["left_out"] = left_out.get((one.id, one.metric))
        rows.append([said.get(name, "") for name in _COLUMNS])
    try:
        file.write_text(to_csv(_COLUMNS, rows), encoding="utf-8", newline="")
    except OSError as error:
        raise unwritable(file, error, "--table") from None


def write_scenarios(
    folder: Path, rows: Sequence[PublishedRow], answers: Iterable[RowResult]
) -> int:
    """Write the scenario of every training row that has one, and return how many. Raises
    UsageError where that is impossible."""
    expressed = {
        one.id for one in answers if one.category == "train_step" and one.predicted is not None
    }
    taken: dict[str, int] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for row in rows:
            if row.id in expressed and row.category == "train_step":
                write_scenario(settled(express(row))[0], folder, _name(row, taken))
    except OSError as error:
        raise unwritable(folder, error, "--write") from None
    return sum(taken.values())


@dataclass(frozen=True, slots=True)
class RowScenario:
    """The scenario of a row as a planner opens it: a file's name and text, and what is changed in
    the catalog parts that the text names, as `--set` takes it."""

    name: str
    text: str
    sets: tuple[tuple[str, str], ...]


def plan_of(row: PublishedRow) -> RowScenario:
    """The scenario that a training row was predicted with. Raises `Unreadable` where it has
    none."""
    found, _ = settled(express(row))
    return RowScenario(f"{file_name(row.id)}.yaml", text_of(found.tree), tuple(leaves(found.over)))


def file_name(row_id: str) -> str:
    """What a row is called as a file, without its ending."""
    return _NO_NAME.sub("-", row_id).strip(".-") or "row"


def _name(row: PublishedRow, taken: dict[str, int]) -> str:
    """The same; rows of one name are numbered."""
    name = file_name(row.id)
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}-{taken[name]}"


FILE: Final = "answers.json"
"""Beside the published rows that are answered."""
VERSION: Final = 2
"""Version of the file."""
ONLOOKERS: Final = (
    "cli",
    "evidence/live",
    "evidence/loop",
    "evidence/measured",
    "explore/study",
    "figures",
    "interop",
    "ui",
)
"""Rooms that show answers, and take no part in them: their code may change without making any
answer older."""
_WORDS: Final = (
    "category", "metric", "use", "source", "model", "gpu", "precision", "reproducible", "stack",
    "calibration", "experts", "software", "regime", "reason", "assumed",
)  # fmt: skip
"""What answers of a group share."""
_NUMBERS: Final = (
    "id", "gpus", "predicted", "measured", "low", "high", "expected", *BASELINES, "left_out",
)  # fmt: skip
"""What a line holds; those at the end that are unknown are left out."""
_EMPTY: Final = (None, "", False, ())


@dataclass(frozen=True, slots=True)
class ShippedAnswers:
    """What a suite came to, the day and the version of the twin that said so, and the digest of
    what it was made from."""

    summary: Summary
    day: str
    twin: str
    made_from: str

    @property
    def is_older(self) -> bool:
        """Whether the twin, its catalog or the rows have changed since."""
        return self.made_from != made_from()


def made_from() -> str:
    """A digest of what answers follow from, as it stands on disk: the code of all rooms but those
    that only show answers, shipped scenarios, the catalog and the published rows."""
    code = [
        file
        for file in SOURCE.rglob("*.py")
        if not file.relative_to(SOURCE).as_posix().startswith(ONLOOKERS)
    ]
    data = shipped_folder()
    texts = [
        file
        for place in (data.glob("*"), *((data / name).rglob("*") for name in ("catalog", SHIPPED)))
        for file in place
        if file.suffix in (".yaml", ".csv", ".json") and file.name != FILE
    ]
    return digest_of(SOURCE, code) + digest_of(data, texts)


def now(summary: Summary) -> ShippedAnswers:
    """A summary that this twin has made just now."""
    return ShippedAnswers(
        summary, datetime.now(UTC).date().isoformat(), version("twin"), made_from()
    )


def shipped() -> ShippedAnswers | None:
    """The answers of this installation; None where there are none."""
    file = shipped_folder() / SHIPPED / FILE
    return _read(file, file.stat().st_mtime_ns) if file.is_file() else None


@lru_cache(2)
def _read(file: Path, as_of: int) -> ShippedAnswers:
    del as_of
    return read(file)


def write(file: Path, kept: ShippedAnswers) -> None:
    """Write answers, a line each. Raises UsageError where that is impossible."""
    texts: dict[str, int] = {}
    groups = ",\n".join(_group_text(words, lines) for words, lines in _groups(kept.summary, texts))
    head = {"version": VERSION, "day": kept.day, "twin": kept.twin, "made_from": kept.made_from,
            "rows": kept.summary.rows, "numbers": _NUMBERS, "texts": list(texts)}  # fmt: skip
    pairs = ",\n".join(
        _dense([pair.faster.id, pair.slower.id, pair.choice, *pair.values])
        for pair in kept.summary.pairs
    )
    text = f'{json.dumps(head)[:-1]},\n"groups": [\n{groups}\n],\n"pairs": [\n{pairs}\n]}}\n'
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(file, error, "--answers") from None


def _group_text(words: str, lines: Sequence[str]) -> str:
    numbers = ",\n".join(lines)
    return f'{words[:-1]},"lines":[\n{numbers}\n]}}'


def _dense(said: Any) -> str:
    return json.dumps(said, separators=(",", ":"))


def _groups(summary: Summary, texts: dict[str, int]) -> Iterator[tuple[str, list[str]]]:
    """Words of each group, and its lines; a text stands in `texts` once, and its place here."""

    def place(said: Any) -> Any:
        if isinstance(said, tuple):
            return [place(one) for one in cast("tuple[Any, ...]", said)]
        return texts.setdefault(said, len(texts)) if isinstance(said, str) else said

    others: list[Mapping[str, RowResult]] = [
        {one.id: one for one in summary.baselines.get(name, ())} for name in BASELINES
    ]
    left_out = {(one.id, one.metric): one.predicted for one in summary.left_out}
    found: dict[str, list[str]] = {}
    for one in summary.answers:
        theirs = [own[one.id].predicted if one.id in own else None for own in others]
        theirs = theirs if one.metric == STEP else [None] * len(others)
        last = left_out.get((one.id, one.metric))
        numbers = [one.predicted, one.measured, *(one.interval or (None, None)),
                   one.expected, *theirs, last]  # fmt: skip
        line = [one.id, one.gpus, *map(_six_digits, numbers)]
        while line[-1] is None:
            line.pop()
        words = {name: place(said) for name in _WORDS if (said := getattr(one, name)) not in _EMPTY}
        if one.experts is not None:
            words["experts"] = one.experts
        found.setdefault(_dense(words), []).append(_dense(line))
    yield from found.items()


def _six_digits(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.6g}")


def read(file: Path) -> ShippedAnswers:
    """Answers from a file that `write` wrote."""
    said = json.loads(file.read_text(encoding="utf-8"))
    texts: list[str] = said["texts"]
    found = [
        (_answer(words, line), line)
        for group in said["groups"]
        for words in ({n: _text(texts, place) for n, place in group.items() if n != "lines"},)
        for line in (dict(zip(said["numbers"], one, strict=False)) for one in group["lines"])
    ]
    answers = tuple(one for one, _ in found)
    steps = {one.id: one for one in answers if one.metric == STEP}
    baselines: dict[Baseline, tuple[RowResult, ...]] = {
        name: tuple(_predicting(found, name)) for name in BASELINES
    }
    pairs = tuple(
        RowPair(
            steps[fast], steps[slow], choice, (own, other), both(steps[fast].use, steps[slow].use)
        )
        for fast, slow, choice, own, other in said["pairs"]
    )
    left_out = tuple(_predicting(found, "left_out"))
    summary = Summary(said["rows"], answers, baselines, pairs, left_out)
    return ShippedAnswers(summary, said["day"], said["twin"], said["made_from"])


def _text(texts: Sequence[str], place: Any) -> Any:
    """The text at a place, or those at several; a yes or no is none."""
    if isinstance(place, list):
        return tuple(_text(texts, one) for one in cast("list[Any]", place))
    return place if isinstance(place, bool) else texts[place]


def _answer(group: Mapping[str, Any], line: Mapping[str, Any]) -> RowResult:
    words = {name: group.get(name, "") for name in _WORDS}
    words |= {
        "reproducible": group.get("reproducible", False),
        "experts": group.get("experts"),
        "assumed": group.get("assumed", ()),
    }
    predicted, low = line.get("predicted"), line.get("low")
    return RowResult(
        id=line["id"],
        gpus=line.get("gpus"),
        status="not_expressible" if predicted is None else "predicted",
        predicted=predicted,
        measured=line.get("measured"),
        expected=line.get("expected"),
        interval=None if low is None else (low, line["high"]),
        **words,
    )


def _predicting(
    found: Iterable[tuple[RowResult, Mapping[str, Any]]], number: str
) -> Iterator[RowResult]:
    """Answers that predict another number of their line, where it is known."""
    for one, line in found:
        if line.get(number) is not None:
            yield replace(one, predicted=line[number], interval=None)
