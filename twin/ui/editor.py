"""The sidebar: which plans are compared, and a form that edits their main fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from twin.ui.answers import Refusal, Written
from twin.ui.fields import FIELDS, Field, choices, listed, rows
from twin.ui.state import edit_key, next_copy

PICKED: Final = "picked"
COPIES: Final = "copies"
FIRST: Final = ("kimi-k2-2048xh800", "kimi-k2-512xh800")
"""What a visitor sees before picking anything."""


def pick(shipped: Sequence[str]) -> list[str]:
    """The plans to compare, in order; the first is the baseline."""
    copies: list[str] = st.session_state.setdefault(COPIES, [])
    st.session_state.setdefault(PICKED, [name for name in FIRST if name in shipped])
    picked = st.multiselect(
        "Plans to compare",
        [*shipped, *copies],
        key=PICKED,
        help="The first one is the baseline that the others are compared with.",
        placeholder="Pick two or more",
    )
    st.button(
        "Add a copy to edit",
        icon=":material/content_copy:",
        disabled=not picked,
        on_click=_add_copy,
        help="Adds a copy of the plan picked last, with its edits, to compare variants of it.",
    )
    return picked


def edit(plans: Mapping[str, Written | Refusal]) -> dict[str, dict[str, str]]:
    """A form with the main fields of each plan; returns what stands in it since the last run."""
    with st.form("edits", border=False):
        st.form_submit_button(
            "Run", type="primary", icon=":material/play_arrow:", width="stretch", key="run"
        )
        return {
            name: _fields(name, written.fields)
            for name, written in plans.items()
            if isinstance(written, Written)
        }


def _fields(name: str, fields: Mapping[str, str]) -> dict[str, str]:
    with st.expander(name, icon=":material/tune:", expanded=True):
        edited: dict[str, str] = {}
        for row in rows(FIELDS):
            for column, field in zip(st.columns(len(row)), row, strict=True):
                key = edit_key(name, field.path)
                with column:
                    edited[field.path] = _widget(field, key, fields[field.path])
    return edited


def _widget(field: Field, key: str, text: str) -> str:
    """The widget of a field, first showing what the scenario says; returns what it now says. The
    state outlives the widget, so that a plan put aside comes back with its edits."""
    if key not in st.session_state:
        st.session_state[key] = _shown(field, text)
    label, hint = field.label, f"`{field.path}`" + (f": {field.help}" if field.help else "")
    match field.kind:
        case "count":
            return str(st.number_input(label, step=1, key=key, help=hint, persist_state="session"))
        case "quantity":
            return st.text_input(label, key=key, help=hint, persist_state="session") or ""
        case "choice":
            kind = st.selectbox(label, field.options, key=key, help=hint, persist_state="session")
            return str(kind)
        case "choices":
            return listed(
                st.multiselect(
                    label,
                    field.options,
                    key=key,
                    help=hint,
                    placeholder="Nothing",
                    persist_state="session",
                )
            )


def _shown(field: Field, text: str) -> str | int | list[str]:
    if field.kind == "count":
        return int(text)
    return choices(text) if field.kind == "choices" else text


def _add_copy() -> None:
    """Add a copy of the plan picked last, edits included, and pick it."""
    picked: list[str] = st.session_state[PICKED]
    copies: list[str] = st.session_state[COPIES]
    source = picked[-1]
    name = next_copy(source, copies)
    for field in FIELDS:
        key = edit_key(source, field.path)
        if key in st.session_state:
            st.session_state[edit_key(name, field.path)] = st.session_state[key]
    st.session_state[COPIES] = [*copies, name]
    st.session_state[PICKED] = [*picked, name]
