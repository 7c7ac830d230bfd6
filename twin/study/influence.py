"""How much each uncertain number matters: one at a time at both ends of its range.

Looked at is every number of the catalog parts that carries a range, or that is assumed or fitted.
The ends are those its source states; where none does, 10 % to either side. The plan stays what it
is, its split of layers included: the question is what the answer would be if the number were
another, not what a planner would do then. Interactions are left out: two numbers that are off
together may do more, or less, than the sum. Steps are the fast path's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from twin.errors import ScenarioError
from twin.plan.types import Plan
from twin.scenario import Scenario
from twin.sources import Kind, Source, Sourced, Written
from twin.study.variants import Answer, Answers, Document, document, replaced, value_at, written
from twin.units import leading_number

DEFAULT_RANGE: Final = 0.1
"""To either side, where no source states a range: ours, a usual first guess, no measurement."""
BOUND: Final = 1.0
"""Where shares end and ratios begin."""

Ends = tuple[float, float]
"""At the low and at the high end of a number's range."""


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
    range_from: Literal["source", "default"]
    """Who gives the range: the number's source, or `DEFAULT_RANGE`."""
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
    scenario: Scenario, progress: Callable[[float], None] | None = None
) -> tuple[Influence, ...]:
    """Every uncertain number of the scenario's parts, the most influential on the step first, then
    on memory. `progress` is told the share that is done.

    Raises `ScenarioError` where the layout is impossible.
    """
    answers = Answers()
    usual = answers.of(scenario)
    base = with_split(document(scenario), usual.plan)
    uncertain = {path: n for path, n in scenario.ledger.items() if _is_uncertain(path, n)}
    found: list[Influence] = []
    for path, number in uncertain.items():
        found.append(_influence(path, number, base, (answers, usual)))
        if progress is not None:
            progress(len(found) / len(uncertain))
    return tuple(sorted(found, key=lambda one: (-one.span, -_width(one.headroom_bytes), one.path)))


def with_split(base: Document, planned: Plan) -> Document:
    """The scenario with the plan's split of layers written out."""
    parallel = planned.scenario.parallel
    parts = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).part_of
    split = {
        part: sum(layer.kind not in ("embedding", "head") for layer in chunk.layers)
        for part, chunk in zip(parts, planned.chunks, strict=True)
    }
    written_out = [split[part] for part in sorted(split)]
    return {**base, "parallel": {**base["parallel"], "layers": written_out}}


def _influence(
    path: str, number: Sourced, base: Document, known: tuple[Answers, Answer]
) -> Influence:
    """Both ends of one number."""
    (low, at_low), (high, at_high) = (
        _end(path, base, written_end, known)
        for written_end in number.range or _scaled(value_at(base, path))
    )
    usual = known[1]
    return Influence(
        path=path,
        value=written(value_at(base, path)),
        kind=number.kind,
        source=number.source,
        note=number.note,
        low=written(low),
        high=written(high),
        range_from="source" if number.range else "default",
        step_seconds=_changes((usual, at_low, at_high), lambda answer: answer.step_ns / 1e9),
        days=_changes((usual, at_low, at_high), lambda answer: answer.days),
        headroom_bytes=_changes((usual, at_low, at_high), lambda answer: answer.headroom),
    )


def _is_uncertain(path: str, number: Sourced) -> bool:
    """A range, or nobody's measurement. What a model is, is a decision."""
    doubtful = number.range is not None or number.kind in ("assumed", "fitted")
    return doubtful and not path.startswith("model.")


def _changes(answers: Sequence[Answer], figure: Callable[[Answer], float]) -> Ends:
    """How a figure of both ends differs from the usual one, which comes first."""
    usual, low, high = map(figure, answers)
    return low - usual, high - usual


def _end(
    path: str, base: Document, end: Written, known: tuple[Answers, Answer]
) -> tuple[Written, Answer]:
    """An end of a range and its answer; where that value cannot be, the nearest that can."""
    answers, usual = known
    value = value_at(base, path)
    for candidate in (end, BOUND) if isinstance(value, float) else (end,):
        try:
            return candidate, answers.of(replaced(base, {path: candidate}))
        except (ValueError, ScenarioError):
            continue
    return value, usual


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
