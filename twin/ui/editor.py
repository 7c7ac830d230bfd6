"""The sidebar: which plans are compared, and their main fields to edit. Edits count once Run is
pressed; until then the page shows what was run last, and says that it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from twin.ui.answers import Bug, Refusal, Written
from twin.ui.fields import FIELDS, Field, choices, listed, overrides, rows
from twin.ui.state import edit_key, next_copy

PICKED: Final = "picked"
COPIES: Final = "copies"
RUN: Final = "run edits"
"""Per plan, the edits with which it was run last."""
MOST: Final = 100_000
"""The largest count that can be entered; no cluster has as many servers."""


@dataclass(frozen=True, slots=True)
class Edits:
    """The edits of a plan, as arguments of `--set`: those that its answer has, and those that stand
    in its fields."""

    run: tuple[str, ...]
    drafted: tuple[str, ...]

    @property
    def waiting(self) -> bool:
        """True where the fields say something else than the answer."""
        return self.run != self.drafted


def pick(names: Sequence[str], first: Sequence[str]) -> list[str]:
    """The plans to compare, in order, at first these; the first is the baseline."""
    copies: list[str] = st.session_state.setdefault(COPIES, [])
    st.session_state.setdefault(PICKED, list(first))
    picked = st.multiselect(
        "Plans to compare",
        [*names, *copies],
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


def edit(plans: Mapping[str, Written | Refusal | Bug]) -> dict[str, Edits]:
    """The main fields of each plan that could be read; returns the edits of each."""
    last: dict[str, tuple[str, ...]] = st.session_state.setdefault(RUN, {})
    pressed = st.button(
        "Run", type="primary", icon=":material/play_arrow:", width="stretch", key="run"
    )
    note = st.empty()
    edits: dict[str, Edits] = {}
    for name, written in plans.items():
        if not isinstance(written, Written):
            continue
        drafted = overrides(written.fields, _fields(name, written.fields))
        if pressed or name not in last:
            last[name] = drafted
        edits[name] = Edits(last[name], drafted)
    if any(one.waiting for one in edits.values()):
        note.markdown(":orange-badge[:material/edit: edited, press Run for new answers]")
    return edits


def _fields(name: str, fields: Mapping[str, str]) -> dict[str, str]:
    with st.expander(name, icon=":material/tune:", expanded=True):
        edited: dict[str, str] = {}
        for row in rows(FIELDS):
            for column, field in zip(st.columns(len(row)), row, strict=True):
                key = edit_key(name, field.path)
                with column:
                    _start(field, key, fields[field.path])
                    edited[field.path] = _widget(field, key, fields[field.path])
    return edited


def _start(field: Field, key: str, text: str) -> None:
    """Show what the scenario says where nobody edited it: at first, and when its file changed."""
    state, seen = st.session_state, f"{key}, as written"
    before = state.get(seen, text)
    if key not in state or (before != text and state[key] == _shown(field, before)):
        state[key] = _shown(field, text)
    state[seen] = text


def _widget(field: Field, key: str, text: str) -> str:
    """The widget of a field; returns what it now says. The state outlives the widget, so that a
    plan put aside comes back with its edits."""
    label, hint = field.label, f"`{field.path}`" + (f": {field.help}" if field.help else "")
    match field.kind:
        case "count":
            # Whatever is written in a file can be shown; what is typed has to make sense.
            known = (int(text), int(st.session_state[key]))
            low, high = min(1, *known), max(MOST, *known)
            return str(
                st.number_input(
                    label, low, high, step=1, key=key, help=hint, persist_state="session"
                )
            )
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
    """Add a copy of the plan picked last, with what stands in its fields, and pick it."""
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
