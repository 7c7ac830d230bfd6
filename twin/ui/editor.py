"""The scenario editor: one widget per field of the schema. What is typed becomes an edit at once,
valid or not; nothing typed is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import streamlit as st

from twin.errors import DEFAULT, Problem, render
from twin.scenario import Root
from twin.ui import session
from twin.ui.fields import Field, Section, Values, as_text, choices, listed, typed, written
from twin.ui.open_plan import code
from twin.ui.session import widget_key
from twin.ui.workspace import Draft, Workspace

_FIELD: Final = 176
"""Pixels of a field: two side by side in the narrowest window, four at 1,280."""
_WIDE: Final = 272
"""Pixels of a field whose options are long: two of them beside a narrow one at 1,280."""
_WIDEST: Final = 2 * _FIELD + 16
"""Pixels of a field in which several options are chosen."""
_LETTERS: Final = 13
"""Letters of an option that a field shows whole."""
_ACROSS: Final = 4
"""Fields of a section that are all shown; of more, those that the scenario says nothing of wait."""
_SHORT: Final = 14
"""Characters of an earlier value that a label repeats."""
_SWITCH: Final = ("true", "false")


@dataclass(frozen=True, slots=True)
class Form:
    """What an editor shows: the open plan, the scenario before its edits, the values of both, and
    what is wrong with the plan."""

    plan: Draft
    file: Root
    now: Values
    before: Values
    problems: tuple[Problem, ...]

    @property
    def wrong(self) -> frozenset[str]:
        """The paths that problems are about."""
        return frozenset(wrong_with(one, self.plan) for one in self.problems)

    def told(self, field: Field) -> bool:
        """True where the file or an edit says the field; elsewhere its default stands."""
        said = self.file.origin(field.path) != DEFAULT or field.path in dict(self.plan.edits)
        return said or field.path in self.wrong


def edit(form: Form, section: Section) -> None:
    """The fields of a section; folded away are those that keep their defaults, where they are many,
    and the numbers of the parts that it names."""
    with st.container(border=True):
        if len(section.fields) > 1:
            st.markdown(f"**{section.title}**", help=section.help)
        many = len(section.fields) > _ACROSS
        more = tuple(one for one in section.fields if many and not form.told(one))
        _rows(form, tuple(one for one in section.fields if one not in more))
        own = [one for one in form.problems if within(wrong_with(one, form.plan), section.key)]
        if own:
            code(render(own))
        if more:
            names = ", ".join(one.label for one in more)
            with st.expander(f"More: {names}", key=f"{form.plan.name}|{section.key}|more"):
                _rows(form, more)
        if section.details:
            _details(form, section)


def _details(form: Form, section: Section) -> None:
    """The numbers of the catalog parts that a section names, drawn once they are asked for."""
    names = ", ".join(dict.fromkeys(filter(None, (_name(form, part) for part in section.details))))
    inside = {field.path for part in section.details for field in part.fields}
    edited = sum(path in inside for path, _ in form.plan.edits)
    label = f"{names or section.title}: all parameters"
    label += f" :orange[({edited} edited)]" if edited else ""
    key = f"{form.plan.name}|{section.key}|parts"
    if form.wrong & inside:
        box = st.expander(label, expanded=True, key=f"{key}|wrong")
    else:
        box = st.expander(label, expanded=edited > 0, key=key, on_change="rerun")
    if form.wrong & inside or box.open:
        with box:
            for part in section.details:
                st.markdown(f"**{part.title} {_name(form, part)}**", help=part.help)
                _rows(form, part.fields)


def wrong_with(problem: Problem, plan: Draft) -> str:
    """The path of the field that a problem is about. An override that the loader could not even
    read is known by its place among the edits only."""
    if not problem.path and problem.origin is not None and problem.origin.file == "--set":
        return plan.sets[problem.origin.line - 1].partition("=")[0]
    return problem.path


def within(path: str, section: str) -> bool:
    """True where a path is a section's, or of a field below it."""
    return path == section or path.startswith(f"{section}.")


def _rows(form: Form, fields: tuple[Field, ...]) -> None:
    """Boxes side by side, as many as the page has room for, then switches."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for field in fields:
            if field.kind != "switch":
                with st.container(width=_width(field)):
                    _widget(form, field)
    with st.container(horizontal=True, gap="medium"):
        for field in fields:
            if field.kind == "switch":
                _widget(form, field)


def _width(field: Field) -> int:
    """Pixels of a field, so that what is chosen in it can be read."""
    if field.kind == "choices":
        return _WIDEST
    longest = max(map(len, field.options), default=0)
    return _WIDE if field.kind == "choice" and longest > _LETTERS else _FIELD


def _widget(form: Form, field: Field) -> None:
    edits = dict(form.plan.edits)
    before, now = written(form.before, field), written(form.now, field)
    text = edits.get(field.path, now)
    text = "" if field.path in edits and text == field.empty else text
    name = f"{form.plan.name}|{field.path}"
    label = _label(form, field, before)
    hint = f"`{field.path}`" + (f": {field.help}" if field.help else "")
    match field.kind:
        case "text":
            key = widget_key(name, text)
            st.text_input(
                label, text, key=key, help=hint, on_change=_typed, args=(field, key, before)
            )
        case "switch" if text in _SWITCH:
            key = widget_key(name, text == "true")
            st.toggle(
                label,
                text == "true",
                key=key,
                help=hint,
                on_change=_typed,
                args=(field, key, before),
            )
        case "choice" | "switch":
            options = _with(text, field.options)
            chosen = _spelt(text, options)
            key = widget_key(name, chosen)
            st.selectbox(
                label,
                options,
                options.index(chosen),
                key=key,
                help=hint,
                on_change=_typed,
                args=(field, key, before),
            )
        case "choices":
            key = widget_key(name, choices(text))
            st.multiselect(
                label,
                list(dict.fromkeys([*field.options, *choices(text)])),
                choices(text),
                key=key,
                help=hint,
                placeholder="Nothing",
                on_change=_typed,
                args=(field, key, before),
            )


def _label(form: Form, field: Field, before: str) -> str:
    """The field's name; what it was before an edit, and whether something is wrong with it."""
    label, paths = field.label, form.wrong
    if field.path in paths or (field.decides and field.path.rpartition(".")[0] in paths):
        label = f":red[:material/error: {label}]"
    if field.path in dict(form.plan.edits):
        was = before if len(before) <= _SHORT else f"{before[:_SHORT]}..."
        label += f" :orange[(was {was.replace('[', '').replace(']', '') or 'empty'})]"
    return label


def _typed(field: Field, key: str, before: str) -> None:
    """Make an edit of what the widget now says; none where that is what stood there before."""
    value: str | list[str] | bool = st.session_state[key]
    match value:
        case bool():
            text = as_text(value)
        case list():
            text = listed(value)
        case str():
            text = value

    def change(on: Workspace) -> Workspace:
        plan = on.open
        outer = any(field.path.startswith(f"{path}.") for path, _ in plan.edits)
        forget = field.path.rpartition(".")[0] if field.decides else ""
        edited = plan.edited(field.path, typed(field, text), forget=forget)
        same = typed(field, text) == typed(field, before) and not outer
        return on.changed(lambda _: edited.without(field.path) if same else edited)

    session.change(change)


def _name(form: Form, part: Section) -> str:
    return written(form.now, Field(part.key, part.title, "choice"))


def _with(text: str, options: tuple[str, ...]) -> list[str]:
    """The options, and what stands there where it is none of them."""
    known = any(text.casefold() == one.casefold() for one in options)
    return list(options) if known else [text, *options]


def _spelt(text: str, options: list[str]) -> str:
    """The option that is meant: a part may spell its own name otherwise than its file."""
    return next((one for one in options if one.casefold() == text.casefold()), text)
