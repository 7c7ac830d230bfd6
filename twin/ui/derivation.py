"""How a key figure comes about: its formula, and those of everything it follows from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import streamlit as st

from twin.report import KPIS
from twin.report.explain import Explanation, explain
from twin.report.numbers import count, digits, duration, gibibytes
from twin.runs import Run
from twin.ui.answers import guarded
from twin.ui.pictures import table
from twin.ui.view import View, say
from twin.units import format_quantity

_INDENT: Final = "\u2003"
"""An em space: how far a row of the table stands in."""


@st.fragment
def derivation(shown: View, run: Run) -> None:
    """One key figure, down to what was written and where; drawn once it is asked for."""
    box = st.expander(
        "Where a number comes from",
        icon=":material/function:",
        key="derivation",
        on_change="rerun",
    )
    if not box.open:
        return
    with box:
        labels = {kpi.key: kpi.label for kpi in KPIS}
        kpi: str = st.selectbox(
            "Key figure", list(labels), format_func=labels.__getitem__, key="derived", width=420
        )
        found = guarded(lambda: explain(run.plan, run.trace, run.report, kpi))
        if isinstance(found, Explanation):
            table(list(rows(found, 0, set())))
        else:
            say(shown.plan, found)


def rows(node: Explanation, depth: int, said: set[Explanation]) -> Iterator[dict[str, str]]:
    """The number, then what it follows from, one step further in; what was said above is not said
    again."""
    again = node in said
    said.add(node)
    yield {
        "Number": f"{_INDENT * 2 * depth}{node.name}",
        "Value": words(node),
        "Formula": f"`{node.formula}`" if node.formula and not again else "",
        "Source": "as above" if again else node.source,
    }
    if not again:
        for child in node.children:
            yield from rows(child, depth + 1, said)


def words(node: Explanation) -> str:
    """A value with its unit."""
    value = node.value
    if value is None:
        return "unknown"
    spoken: dict[str, Callable[[], str]] = {
        "%": lambda: f"{digits(100 * value)} %",
        "s": lambda: duration(value),
        "ns": lambda: duration(value / 1e9),
        "bytes": lambda: gibibytes(value),
        "bytes/s": lambda: format_quantity(value, "bytes_per_s", digits=3),
        "FLOP/s": lambda: format_quantity(value, "flop_per_s", digits=3),
    }
    if node.unit in spoken:
        return spoken[node.unit]()
    return f"{count(value) if abs(value) >= 1e4 else f'{value:.6g}'} {node.unit}"
