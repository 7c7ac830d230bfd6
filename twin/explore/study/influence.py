"""How much each uncertain number matters: one at a time at both ends of its range.

Looked at is every number of the catalog parts that carries a range, or that is assumed or fitted;
or the fields that are asked about, whose ends may be any values, lists too (`parallel.layers`). The
ends are those its source states; where none does, 10 % to either side. The plan stays what it is,
its split of layers included: the question is what the answer would be if the number were another,
not what a planner would do then. Interactions are left out: two numbers that are off together may
do more, or less, than the sum.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, cast

from twin.answers.nearest import (
    Document,
    StepAnswer,
    StepAnswers,
    document,
    replaced,
    value_at,
    written,
)
from twin.errors import Problem, ScenarioError, UsageError
from twin.kinds.base import Fidelity
from twin.loading.load import read_overrides
from twin.loading.sourcing import is_number
from twin.loading.tree import hint, plain
from twin.planning.types import Plan
from twin.reports.table import Table, headed, signed_bytes, signed_duration
from twin.scenario import Scenario
from twin.sources import Kind, Source, Sourced, Written
from twin.units import leading_number

DEFAULT_RANGE: Final = 0.1
"""To either side, where no source states a range: ours, a usual first guess, no measurement."""
BOUND: Final = 1.0
"""Where shares end and ratios begin."""

_MOST: Final = 16
"""Numbers that a tornado lists."""
_LETTERS: Final = 28
"""Letters of an end of a range in the tornado."""
Ends = tuple[float, float]
"""At the low and at the high end of a number's range."""
_NO_TIME: Final = re.compile(r"\.power\.|\.gpu_power$")
"""Numbers of the cluster that only energy follows from, but for limits that clocks follow."""
BETWEEN: Final = ".."
"""Between the two ends of a range that is asked about."""


@dataclass(frozen=True, slots=True)
class AskedField:
    """A field that is asked about; `ends` are any two values that it may have, None: those of its
    source, or the default range."""

    path: str
    ends: tuple[Any, Any] | None = None


def read_asked(texts: Sequence[str]) -> tuple[AskedField, ...]:
    """`PATH`, or `PATH=LOW..HIGH` with two values as `--set` takes them. Raises `UsageError`."""
    return tuple(_read(text) for text in texts)


def _read(text: str) -> AskedField:
    path, equals, ends = text.partition("=")
    if not equals:
        return AskedField(path.strip())
    low, between, high = ends.partition(BETWEEN)
    if not between or not low.strip() or not high.strip():
        message = f"`{text}` names no two ends"
        fix = f"write `{path.strip()}=LOW{BETWEEN}HIGH`, or the field alone"
        raise UsageError([Problem("TW161", "", message, fix)])
    return AskedField(path.strip(), (_value(path, low), _value(path, high)))


def _value(path: str, text: str) -> Any:
    """A value as `--set` reads it."""
    (tree,) = read_overrides([f"{path}={text.strip()}"])
    return value_at(plain(tree), path.strip())


@dataclass(frozen=True, slots=True)
class Influence:
    """One uncertain number, and what the run would be at both ends of its range."""

    path: str
    value: str
    kind: Kind
    source: Source | None
    note: str
    low: str
    high: str
    range_from: Literal["source", "default", "asked"]
    """Who gives the range: the number's source, `DEFAULT_RANGE`, or who asks."""
    step_seconds: Ends
    """Change of the step."""
    days: Ends
    """Change of the run time."""
    headroom_bytes: Ends
    """Change of what the fullest GPU has left."""

    @property
    def span(self) -> float:
        """Seconds between the longest and the shortest step over the range."""
        return _width(self.step_seconds)

    def to_json(self) -> dict[str, Any]:
        """The number in plain data; changes are [low, high]."""
        ends = ("step_seconds", "days", "headroom_bytes")
        pairs = {name: list(getattr(self, name)) for name in ends}
        return {**asdict(self), **pairs, "span_seconds": self.span}


def influence(
    scenario: Scenario,
    progress: Callable[[float], None] | None = None,
    *,
    asked: Sequence[AskedField] = (),
    fidelity: Fidelity = "events",
) -> tuple[Influence, ...]:
    """Every uncertain number of the scenario's parts, or the fields that are `asked` about, the
    most influential on the step first, then on memory. `progress` is told the share that is done.

    Raises `ScenarioError` where the layout is impossible, and `UsageError` where a field that is
    asked about is none, or cannot have the value at one of its ends.
    """
    answers = StepAnswers(fidelity)
    usual = answers.of(scenario)
    base = with_split(document(scenario), usual.plan)
    wanted = [_known(one, base, scenario) for one in asked] or [
        (AskedField(path), number)
        for path, number in scenario.ledger.items()
        if _is_doubtful(path, number)
    ]
    found: list[Influence] = []
    for one, number in wanted:
        found.append(_influence(one, number, base, (answers, usual)))
        if progress is not None:
            progress(len(found) / len(wanted))
    return tuple(sorted(found, key=lambda one: (-one.span, -_width(one.headroom_bytes), one.path)))


def _known(asked: AskedField, base: Document, scenario: Scenario) -> tuple[AskedField, Sourced]:
    """A field that is asked about, with what is known of its number."""
    section, _, key = asked.path.rpartition(".")
    place = value_at(base, section) if section else base
    keys = sorted(cast("dict[str, Any]", place)) if isinstance(place, dict) else []
    is_item = isinstance(place, list) and value_at(base, asked.path) is not None
    if key not in keys and not is_item:
        message = f"the scenario has no field `{asked.path}`"
        raise UsageError([Problem("TW161", "", message, hint(key, keys, f"in `{section}`"))])
    number = scenario.ledger.get(asked.path)
    value = value_at(base, asked.path)
    if number is None and asked.ends is None and not is_number(value):
        message = f"`{asked.path}` is no number, so it has no range of its own"
        fix = f"write both ends: `{asked.path}=LOW{BETWEEN}HIGH`"
        raise UsageError([Problem("TW161", "", message, fix)])
    return asked, number or Sourced(None, "assumed", note="written by the planner")


def with_split(base: Document, planned: Plan) -> Document:
    """The scenario with the plan's split of layers written out."""
    layers = list(planned.layers_per_part)
    return {**base, "parallel": {**base["parallel"], "layers": layers}}


def _influence(
    asked: AskedField, number: Sourced, base: Document, known: tuple[StepAnswers, StepAnswer]
) -> Influence:
    """Both ends of one number."""
    path, usual = asked.path, known[1]
    (low, at_low), (high, at_high) = (
        [_end(path, base, end, known) for end in number.range or _scaled(value_at(base, path))]
        if asked.ends is None
        else [(end, _asked_end(path, base, end, known[0])) for end in asked.ends]
    )
    return Influence(
        path=path,
        value=written(value_at(base, path)),
        kind=number.kind,
        source=number.source,
        note=number.note,
        low=written(low),
        high=written(high),
        range_from="asked" if asked.ends else "source" if number.range else "default",
        step_seconds=_changes((usual, at_low, at_high), lambda answer: answer.step_ns / 1e9),
        days=_changes((usual, at_low, at_high), lambda answer: answer.days),
        headroom_bytes=_changes((usual, at_low, at_high), lambda answer: answer.headroom),
    )


def _is_doubtful(path: str, number: Sourced) -> bool:
    """A stated range, or nobody's measurement. What a model is, is a decision, unless its entry
    states a range; what power and prices are moves no time and no byte."""
    if path.startswith("model."):
        return number.range is not None
    if path.startswith("cost.") or _NO_TIME.search(path):
        return False
    return number.range is not None or number.kind in ("assumed", "fitted")


def _changes(answers: Sequence[StepAnswer], figure: Callable[[StepAnswer], float]) -> Ends:
    """How a figure of both ends differs from the usual one, which comes first."""
    usual, low, high = map(figure, answers)
    return low - usual, high - usual


def _end(
    path: str, base: Document, end: Written, known: tuple[StepAnswers, StepAnswer]
) -> tuple[Written, StepAnswer]:
    """An end of a range and its answer; where that value cannot be, the nearest that can."""
    answers, usual = known
    value = value_at(base, path)
    for candidate in (end, BOUND) if isinstance(value, float) else (end,):
        try:
            return candidate, answers.of(replaced(base, {path: candidate}))
        except (ValueError, ScenarioError):
            continue
    return value, usual


def _asked_end(path: str, base: Document, end: Any, answers: StepAnswers) -> StepAnswer:
    """The answer at an end that is asked about. Raises `UsageError` where it cannot be."""
    try:
        return answers.of(replaced(base, {path: end}))
    except (ValueError, ScenarioError) as error:
        why = error.problems[0].message if isinstance(error, ScenarioError) else _reason(error)
        message = f"`{path}` cannot be {written(end)}: {why}"
        raise UsageError([Problem("TW162", "", message, "choose another end")]) from None


def _reason(error: ValueError) -> str:
    """What pydantic says is wrong, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return (lines[2] if len(lines) > 2 else lines[0]).partition(" [type=")[0]


def _scaled(value: Written) -> tuple[Written, Written]:
    """The value less and plus the default range, in its own unit."""
    return _times(value, 1 - DEFAULT_RANGE), _times(value, 1 + DEFAULT_RANGE)


def _times(value: Written, factor: float) -> Written:
    """A number, or the number before a unit, times a factor; counts stay whole."""
    if isinstance(value, str):
        number = leading_number(value) or ""
        return f"{float(number) * factor:.12g}{value.removeprefix(number)}"
    if isinstance(value, int):
        return max(1, round(value * factor))
    return float(f"{(value or 0.0) * factor:.12g}")


def _width(ends: Ends) -> float:
    return max(*ends, 0.0) - min(*ends, 0.0)


def sentence(found: Sequence[Influence]) -> str:
    """Which number matters most, in words."""
    moving = [one for one in found if one.span]
    if not moving:
        return "None of these numbers changes the step."
    first = moving[0]
    low, high = (signed_duration(end) for end in first.step_seconds)
    return f"{first.path} matters most for the step: {low} at {first.low}, {high} at {first.high}."


def tornado_table(found: Sequence[Influence], fidelity: Fidelity) -> Table:
    """The change of the step at both ends of each number's range, the widest first."""
    table = headed("At both ends of each range", "number", "low", "step", "high", "step", "memory")
    for row in found[:_MOST]:
        low, high = row.step_seconds
        spare = max(row.headroom_bytes, key=abs)
        table.add_row(
            row.path + ("" if row.range_from != "default" else " *"),
            _short(row.low),
            signed_duration(low),
            _short(row.high),
            signed_duration(high),
            signed_bytes(-spare),
        )
    notes = ["Every rank of one model-parallel group is simulated."] if fidelity == "group" else []
    if any(row.range_from == "default" for row in found[:_MOST]):
        notes.append("* no source states a range: 10 % to either side.")
    if len(found) > _MOST:
        notes.append(f"{len(found) - _MOST} more matter less (--json lists all).")
    table.caption = " ".join(notes)
    return table


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
