"""Sensitivity: the effect of uncertain numbers on the step, sliders over the largest of them, and
every number with its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, get_args

import streamlit as st

from twin.answers import Run
from twin.answers.nearest import StepAnswer, StepAnswers, document, replaced
from twin.errors import DEFAULT, printable
from twin.explore.study.influence import Influence, with_split
from twin.figures.differences import Swing, tornado
from twin.loading import Row, rows
from twin.loading.sourcing import is_number
from twin.reports.table import digits, gibibytes, show
from twin.sources import Sourced
from twin.ui import session
from twin.ui.answers import Failure, Planned, Question, guarded, influences, plan_of, studied
from twin.ui.parts import known_as
from twin.ui.place import OpenPlan, answered, grid, place, ready, say, theme
from twin.ui.workspace import varied
from twin.units import Dimension, QuantityError, format_quantity, parse

SLIDERS: Final = 6
"""Numbers that get a slider: those with the largest influence on the step."""
_STOPS: Final = 4
"""Stops of a slider on either side of the present value."""
_SLIDER: Final = 185
"""Pixels of a slider: two side by side in the narrowest window."""
_KEPT: Final = 64


def sensitivity_section(shown: OpenPlan, scenario: Any) -> None:
    """The effect of every uncertain number on the step, sliders, and the ledger of all numbers."""
    run = answered(shown)
    found = () if run is None else _influences(shown)
    if run is not None and found:
        place(tornado(swings(found), "Step time", "s", theme()), key="tornado")
        st.header("What if")
        _what_if(shown, run, found)
    # The ledger, to be sorted by any column and searched.
    st.header("Every number and its source")
    lines = number_rows(rows(scenario), found)
    kinds = sorted({line["Kind"] for line in lines})
    wanted = st.pills("Kinds", kinds, selection_mode="multi", default=kinds, key=f"kinds {kinds}")
    kept = [line for line in lines if line["Kind"] in wanted]
    grid(kept, key="every number", words="Every number of the plan with its source and influence")


def _influences(shown: OpenPlan) -> tuple[Influence, ...]:
    """How much each uncertain number matters; none while that is being looked at."""
    words = "Simulating both ends of every uncertain number."
    return ready(studied(influences, shown.asked), shown.plan, words) or ()


@st.fragment
def _what_if(shown: OpenPlan, run: Run, found: tuple[Influence, ...]) -> None:
    """Sliders, each stop simulated; the rest of the page stays as it is."""
    st.caption("Ranges are those of their sources, or 10 % to either side.")
    _sliders(shown, run, found)


def number_rows(found: Sequence[Row], influences: Sequence[Influence]) -> list[dict[str, Any]]:
    """Every number of a plan, the most influential first: what it is, who says so, and by how much
    the step changes over its range (seconds; nothing where that was not looked at)."""
    spans = {one.path: one for one in influences}
    rows = [_row(row, spans.get(row.path)) for row in found if _counts(row)]
    return sorted(rows, key=lambda row: -(row["Influence on the step (s)"] or 0.0))


def _counts(row: Row) -> bool:
    """True for numbers; the version of the file's format is none of the plan's."""
    return row.path != "schema" and (row.known is not None or is_number(row.value))


def swings(influences: Sequence[Influence]) -> list[Swing]:
    """The change of the step over the range of each number, for the tornado."""
    return [
        Swing(
            label=one.path,
            low=one.low,
            high=one.high,
            at_low=one.step_seconds[0],
            at_high=one.step_seconds[1],
            source=one.source.title if one.range_from == "source" and one.source else "10 %, ours",
        )
        for one in influences
    ]


def _row(row: Row, influence: Influence | None) -> dict[str, Any]:
    known = known_as(row.known) if row.known else known_as(Sourced(row.value, "assumed"))
    changed = influence.step_seconds if influence else None
    origin = row.origin
    return {
        "Number": row.path,
        "Value": "null" if row.value is None else str(row.value),
        "Kind": known["Kind"] if row.known else "default" if origin == DEFAULT else "planner",
        "Influence on the step (s)": influence.span if influence else None,
        "Step at both ends": " to ".join(_signed(one) for one in changed) if changed else "",
        "Range": f"{influence.low} to {influence.high}" if influence else known["Range"],
        "Source": known["Source"],
        "Link": known["Link"] or None,
        "Written": printable(origin.text if origin.file == "--set" else str(origin)),
        "Note": known["Note"],
    }


def _sliders(shown: OpenPlan, run: Run, influences: Sequence[Influence]) -> None:
    """Move the numbers that matter most within their ranges, and see the step move."""
    chosen: dict[str, str] = {}
    ranged = [(one, between(one.low, one.value, one.high)) for one in influences]
    movable = [(one, stops) for one, stops in ranged if len(stops) > 1]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for one, stops in movable[:SLIDERS]:
            value = _slider(shown, one, stops)
            if value != one.value:
                chosen[one.path] = value
    base = StepAnswer(run.plan, run.report.step_ns, {})
    moved = what_if(shown.asked, tuple(chosen.items())) if chosen else base
    if not isinstance(moved, StepAnswer):
        say(shown.plan, moved)
        return
    _outcome(base, moved)
    st.button(
        "Keep as a variant",
        icon=":material/content_copy:",
        disabled=not chosen,
        on_click=_keep,
        args=(chosen,),
    )


def _slider(shown: OpenPlan, one: Influence, stops: list[str]) -> str:
    """Where the slider of a number stands."""
    key = f"what if {shown.plan.name}|{one.path}"
    return st.select_slider(
        one.path.replace(".", ".\u200b"),
        stops,
        value=one.value,
        key=key,
        help=one.note or None,
        width=_SLIDER,
    )


@lru_cache(_KEPT)
def what_if(asked: Question, values: tuple[tuple[str, str], ...]) -> StepAnswer | Failure:
    """The answer to a plan with some numbers replaced, its split of layers kept."""
    planned = plan_of(asked)
    if not isinstance(planned, Planned):
        return planned
    base = with_split(document(planned.scenario), planned.plan)
    changed = {path: _plain(value) for path, value in values}
    return guarded(lambda: StepAnswers().of(replaced(base, changed)))


def between(low: str, value: str, high: str) -> list[str]:
    """Stops from low to high through the value, evenly on either side; the three alone where they
    cannot be measured in one unit. An end that is the value in other words is the value.

    >>> between("0.5", "0.7", "0.8")[:3]
    ['0.5', '0.55', '0.6']
    >>> between("0us", "0s", "2.0ms")
    ['0s', '500us', '1ms', '1.5ms', '2.0ms']
    """
    texts = (low, value, high)
    for dimension in get_args(Dimension):
        if (numbers := _measured(texts, dimension)) is not None:
            return _stops(texts, numbers, _writer(dimension))
    numbers = [_plain(text) for text in texts]
    if any(isinstance(number, str) for number in numbers):
        return list(dict.fromkeys(texts))
    whole = all(isinstance(number, int) for number in numbers)
    plain = [float(number) for number in numbers]
    return _stops(texts, plain, lambda one: str(round(one)) if whole else f"{one:.4g}")


def _measured(texts: Sequence[str], dimension: Dimension) -> list[float] | None:
    """The values in the unit of a dimension; None where one is none of it, or a bare number."""
    try:
        return [parse(text, dimension) for text in texts]
    except QuantityError:
        return None


def _writer(dimension: Dimension) -> Callable[[float], str]:
    """Writes a quantity as a file would have it, in four digits."""
    return lambda value: format_quantity(value, dimension, 4).replace(" ", "")


def _stops(
    texts: tuple[str, str, str], numbers: Sequence[float], written: Callable[[float], str]
) -> list[str]:
    """The three texts with stops between those that differ."""
    (low, value, high), (first, middle, last) = texts, numbers
    left = [first + (middle - first) * at / _STOPS for at in range(1, _STOPS)]
    right = [middle + (last - middle) * at / _STOPS for at in range(1, _STOPS)]
    below = [] if first == middle else [low, *map(written, left)]
    above = [] if last == middle else [*map(written, right), high]
    return list(dict.fromkeys([*below, value, *above]))


def _plain(value: str) -> str | float | int:
    """A stop as a file would hold it: a number where it has no unit."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _outcome(base: StepAnswer, moved: StepAnswer) -> None:
    """The plan's figures with the numbers moved; untouched, they are those beside the page."""
    seconds, days = (moved.step_ns - base.step_ns) / 1e9, moved.days - base.days
    with st.container(horizontal=True, gap="medium"):
        _moved("Step time", base.step_ns / 1e9, seconds, "s")
        _moved("Run time, no failures", base.days, days, "d")
        st.metric("Memory left on the fullest GPU", _spare(moved.headroom), width="content")


def _moved(label: str, before: float, change: float, unit: Literal["s", "d"]) -> None:
    """One figure with its change, in its unit and in per cent."""
    sign, word = ("-", "better") if change < 0 else ("+", "worse")
    size = f"{sign}{show(abs(change), unit)}, {_percent(change / before)}, {word}"
    words = size if change else None
    st.metric(label, show(before + change, unit), words, "inverse", width="content")


def _spare(headroom: float) -> str:
    return gibibytes(headroom) if headroom >= 0 else f"{gibibytes(-headroom)} over"


def _percent(change: float) -> str:
    return f"{'-' if change < 0 else '+'}{digits(abs(100 * change))} %"


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{digits(abs(seconds))} s" if seconds else "0 s"


def _keep(chosen: Mapping[str, str]) -> None:
    session.change(lambda on: on.added(varied(on.open, chosen, f"{on.open.scenario} (what if)")))
