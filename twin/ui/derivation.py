"""Derivation: the formula of a key figure, and those of all its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import streamlit as st

from twin.answers import Run
from twin.reports.explain import Explanation, explain
from twin.ui.answers import guarded
from twin.ui.open_plan import OpenPlan, say
from twin.ui.place import table

_LEVEL: Final = "\u2502\u00a0"
"""A rule and a no-break space: one level in. Spaces alone would be cut off by the table's
Markdown, and other spaces would let a name break away from its rules."""


@st.fragment
def derivation(shown: OpenPlan, run: Run) -> None:
    """One key figure down to its inputs and their places; drawn when opened."""
    box = st.expander(
        "Where a number comes from",
        icon=":material/function:",
        key="derivation",
        on_change="rerun",
    )
    if not box.open:
        return
    with box:
        labels = {kpi.key: kpi.label for kpi in run.kind.kpis}
        kpi: str = st.selectbox(
            "Key figure", list(labels), format_func=labels.__getitem__, key="derived", width=420
        )
        found = guarded(lambda: explain(run.plan, run.program, run.trace, run.report, kpi))
        if isinstance(found, Explanation):
            table(list(rows(found, 0, set())))
        else:
            say(shown.plan, found)


def rows(node: Explanation, depth: int, said: set[Explanation]) -> Iterator[dict[str, str]]:
    """The number, then its inputs, one level in; repeated nodes say so."""
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
