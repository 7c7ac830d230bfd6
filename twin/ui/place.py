"""How figures and tables are placed: the only module that hands data to streamlit's charts."""

# Streamlit's annotations name types of libraries that this project does not install.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import streamlit as st

from twin.figures.palette import Theme
from twin.figures.plotly import Picture
from twin.figures.view import Control, View
from twin.reports.table import Block, Table

_CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
_STEPS = 200
"""Positions of a window slider."""


def theme() -> Theme:
    """The theme in which the browser shows the page."""
    return "dark" if st.context.theme.type == "dark" else "light"


def place(picture: Picture, key: str, chosen: Callable[[], None] | None = None) -> None:
    """Show a figure: its finding, how to read it, the chart, and its numbers as a table, so that
    nothing is said by colour or hovering alone. `chosen` is called after a click on a point; the
    point is in the session's state under the key."""
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
        with st.expander("Show as table", icon=":material/table:"):
            table(picture.table)


def sections(views: Iterable[View]) -> dict[str, list[View]]:
    """Views by the section of the page that they belong to, in order."""
    found: dict[str, list[View]] = {}
    for one in views:
        found.setdefault(one.section, []).append(one)
    return found


def show_views(views: Sequence[View], name: str) -> None:
    """Figures under their headings; neighbours with one heading share it. `name` tells apart the
    keys of several plans."""
    heading = ""
    for one in views:
        if one.folded:
            box = st.expander(one.heading, key=f"{name}|{one.heading}", on_change="rerun")
            if box.open:
                with box:
                    _show_view(one, name)
            continue
        if one.heading != heading:
            st.subheader(one.heading)
        heading = one.heading
        _show_view(one, name)


@st.fragment
def _show_view(view: View, name: str) -> None:
    """A figure with its controls; a change of one draws nothing else again."""
    chosen: dict[str, Any] = {}
    if view.controls:
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            chosen = {
                one.key: _control(one, f"{view.key}|{one.key}|{name}") for one in view.controls
            }
    place(view.draw(theme(), chosen), key=f"{view.key}|{name}")


def _control(control: Control, key: str) -> Any:
    """The widget of a control; returns its value."""
    match control.kind:
        case "switch":
            return st.toggle(control.label, control.default, key=key, help=control.help or None)
        case "choice":
            options = control.options
            default = control.default if control.default in options else next(iter(options))
            if len(options) > _MOST_SEGMENTS:
                return st.selectbox(
                    control.label,
                    list(options),
                    list(options).index(default),
                    format_func=options.__getitem__,
                    key=key,
                    width=320,
                )
            return st.segmented_control(
                control.label,
                list(options),
                default=default,
                required=True,
                format_func=lambda one: options[one],
                key=key,
            )
        case "window":
            return _window(control, key)


_MOST_SEGMENTS = 5
"""Options that stand side by side; more are a list."""


def _window(control: Control, key: str) -> tuple[int, int]:
    """A part of the time (ns), chosen in seconds."""
    seconds = control.end_ns / 1e9
    first, last = control.default
    decimals = max(0, 3 - len(str(int(seconds))))
    start, end = st.slider(
        control.label,
        0.0,
        seconds,
        (first / 1e9, last / 1e9),
        seconds / _STEPS,
        format=f"%.{decimals}f",
        key=f"{key} {control.end_ns}",
    )
    return round(start * 1e9), round((end if end > start else seconds) * 1e9)


def blocks(found: Sequence[Block]) -> None:
    """Tables and notes of an answer, each folded under its title."""
    for block in found:
        with st.expander(block.title, icon=":material/table:"):
            if isinstance(block, Table):
                table(block.records())
                if block.caption:
                    st.caption(block.caption)
            else:
                st.markdown("\n".join(f"- {line}" for line in block.lines))


def table(rows: Sequence[Mapping[str, str]]) -> None:
    """Show rows of text as a real table, which screen readers and the page's search can read."""
    st.table([dict(row) for row in rows], hide_index=True, border="horizontal")


def grid(
    rows: Sequence[Mapping[str, Any]],
    key: str,
    words: str,
    chosen: Callable[[], None] | None = None,
) -> None:
    """Show many rows as a table that can be sorted and searched; `words` describe it. `chosen` is
    called after a row was chosen; it is in the session's state under the key."""
    links = {"Link": st.column_config.LinkColumn(display_text="open")}
    columns = dict.fromkeys(name for row in rows for name in row)
    st.dataframe(
        {name: [row.get(name) for row in rows] for name in columns},
        hide_index=True,
        column_config=links,
        key=key,
        alt=words,
        placeholder="",
        on_select=chosen or "ignore",
        selection_mode="single-row",
    )
