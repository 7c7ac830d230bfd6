"""How a key figure comes about: its formula, and those of everything it follows from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import streamlit as st

from twin.answers import Run
from twin.reports import KPIS
from twin.reports.explain import Explanation, explain
from twin.ui.answers import guarded
from twin.ui.pictures import table
from twin.ui.view import View, say

_LEVEL: Final = "\u2502\u00a0"
"""A rule and a no-break space: one level in. Spaces alone would be cut off by the table's
Markdown, and other spaces would let a name break away from its rules."""


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
        "Number": f"{_LEVEL * depth}{node.name}",
        "Value": node.shown,
        "Formula": f"`{node.formula}`" if node.formula and not again else "",
        "Source": "as above" if again else node.source,
    }
    if not again:
        for child in node.children:
            yield from rows(child, depth + 1, said)
