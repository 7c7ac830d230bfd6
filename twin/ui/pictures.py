"""How figures and tables are placed: the only module that hands data to streamlit's charts."""

# Streamlit's annotations name types of libraries that this project does not install.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from twin.figures.palette import Theme
from twin.figures.plotly import Picture

_CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}


def theme() -> Theme:
    """The theme in which the browser shows the page."""
    return "dark" if st.context.theme.type == "dark" else "light"


def place(picture: Picture, key: str, chosen: Callable[[], None] | None = None) -> None:
    """Show a figure: its finding, how to read it, the chart, and its numbers as a table, so that
    everything it says is also there without colour and without hovering. `chosen` is called once a
    point was clicked; the point is in the session's state under the key."""
    findings = picture.title.splitlines()
    st.markdown("  \n".join(f"**{line}**" for line in findings))
    st.caption(picture.caption)
    st.plotly_chart(
        picture.figure,
        key=key,
        config=_CHART,
        alt=". ".join(findings),
        on_select=chosen or "ignore",
        selection_mode="points",
    )
    if picture.table:
        with st.expander("The same as a table", icon=":material/table:"):
            table(picture.table)


def table(rows: Sequence[Mapping[str, str]]) -> None:
    """Show rows of text as a real table, which screen readers and the page's search can read."""
    st.table([dict(row) for row in rows], hide_index=True, border="horizontal")


def grid(
    rows: Sequence[Mapping[str, Any]],
    key: str,
    words: str,
    chosen: Callable[[], None] | None = None,
) -> None:
    """Show many rows as a table that can be sorted and searched; `words` say what it holds.
    `chosen` is called once a row was chosen; it is in the session's state under the key."""
    links = {"Link": st.column_config.LinkColumn(display_text="open")}
    st.dataframe(
        {name: [row.get(name) for row in rows] for name in _columns(rows)},
        hide_index=True,
        column_config=links,
        key=key,
        alt=words,
        placeholder="",
        on_select=chosen or "ignore",
        selection_mode="single-row",
    )


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every column of any row, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))
