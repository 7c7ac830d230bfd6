"""Plan: the scenario's fields, and what the twin says of them while they are edited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin.errors import Problem, render
from twin.reports import resolved
from twin.scenario import Root
from twin.ui import RESULT, editor, launch_file, session
from twin.ui.answers import Failure, Refusal, plan_of, scenario_of
from twin.ui.editor import Form, Section, schema, sections, with_kinds
from twin.ui.other_software import about
from twin.ui.parts import catalog_section, say_verdict
from twin.ui.place import OpenPlan, answered, ask_about, code, open_plan, say
from twin.ui.workspace import Draft

_PRESET: Final = "open a scenario"
_FILE: Final = "scenario file"
_TEXT: Final = "scenario text"
_TURN: Final = "files opened"
_OTHERS: Final = "sections left out"
_SOFTWARE: Final = "software"
"""The section that comes first: without it a stack is assumed."""


def page() -> None:
    """Run the page once, top to bottom."""
    shown = open_plan()
    name = session.section("Plan", ["Scenario", launch_file.SECTION, "Catalog"])
    if name == "Catalog":
        catalog_section()
        return
    if name == launch_file.SECTION:
        launch_file.launch_section()
        return
    before = scenario_of(ask_about(shown.plan.original))
    # What is said changes; below it fields keep their place, and typed text. They need no answer.
    said, fields = st.container(), st.container()
    with said:
        _say(shown, before, lambda: _fields(fields, shown, before))


def _fields(place: DeltaGenerator, shown: OpenPlan, before: Root | Failure) -> None:
    """Where plans come from, and the fields of the open one."""
    with place:
        _open()
        if isinstance(before, Failure):
            _mend(shown, before)
        else:
            _edit(shown, before)


def _open() -> None:
    """Where plans come from: a shipped scenario, or a file."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Open a scenario",
            list(session.known().files),
            index=None,
            key=_PRESET,
            placeholder="Choose a scenario to start from",
            on_change=_open_preset,
            width=420,
            help="Replaces the open plan, or opens beside it where edits would be lost.",
        )
        turn: int = st.session_state.get(_TURN, 0)
        key = f"{_FILE} {turn}"
        with st.popover("Upload a file", icon=":material/upload:", key=f"upload {turn}"):
            words = "A scenario (YAML), or a launch script, recipe or config.json"
            file = st.file_uploader(words, key=key, on_change=_upload, args=(key,))
            if file is not None:
                st.error(f"`{file.name}` is not text (UTF-8), so it cannot be opened.")


def _edit(shown: OpenPlan, file: Root) -> None:
    """The sections that the scenario says something of, then the others, folded."""
    scenario, edits = scenario_of(shown.asked), dict(shown.plan.edits)
    valid = not isinstance(scenario, Failure)
    now = with_kinds(resolved(scenario if valid else file), {} if valid else edits)
    form = Form(shown.plan, file, now, resolved(file), _problems(shown))
    found = sections(schema(), now)
    words = about(now, assumed=not isinstance(scenario, Failure) and scenario.software_assumed)
    usual = sorted(
        (one for one in found if one.key == _SOFTWARE or _is_told(form, one)),
        key=lambda one: one.key != _SOFTWARE,
    )
    for section in usual:
        editor.edit(form, section, words if section.key == _SOFTWARE else "")
    others = [one for one in found if one not in usual]
    if others:
        names = ", ".join(one.title for one in others)
        box = st.expander(f"Not in this scenario: {names}", key=_OTHERS, on_change="rerun")
        if box.open:
            with box:
                for section in others:
                    editor.edit(form, section)


def _is_told(form: Form, section: Section) -> bool:
    """True where the file or an edit says something of a section, or something in it is wrong."""
    own = section.key, *(part.key for part in section.details)
    edited = any(editor.within(path, key) for path, _ in form.plan.edits for key in own)
    wrong = any(editor.within(path, key) for path in form.wrong for key in own)
    return edited or wrong or any(form.told(one) for one in section.fields)


def _problems(shown: OpenPlan) -> tuple[Problem, ...]:
    """What is wrong with the plan, as far as it is known before a simulation is waited for."""
    reply = session.replies().get(shown.asked)
    found = plan_of(shown.asked) if reply is None else reply.now
    return found.problems if isinstance(found, Refusal) else ()


def _mend(shown: OpenPlan, wrong: Failure) -> None:
    """A scenario that cannot be read, as text: mended here, it becomes fields."""
    if shown.plan.text is None:
        say(shown.plan.original, wrong)
        return
    st.caption("This file is not a valid scenario yet. Edit it here.")
    if _TEXT not in st.session_state:
        st.session_state[_TEXT] = shown.plan.text
    st.text_area("Text of the scenario", key=_TEXT, height=500, on_change=_retype)


def _say(shown: OpenPlan, before: Root | Failure, below: Callable[[], None]) -> None:
    """The answer above the fields: it changes with every edit. What is wrong with a field stands
    beside it. `below` draws the fields."""
    problems = _problems(shown)
    if problems and not isinstance(before, Failure):
        st.error(
            f"**{shown.plan.title}** cannot run as written. The fields marked invalid say why.",
            icon=":material/error:",
        )
        keys = [section.key for section in sections(schema(), resolved(before))]
        paths = [(one, editor.wrong_with(one, shown.plan)) for one in problems]
        homeless = [one for one, path in paths if not any(editor.within(path, k) for k in keys)]
        if homeless:
            code(render(homeless))
        below()
        return
    if (now := answered(shown, below)) is not None:
        say_verdict(now.kind.sentences(now)[0], now.report)
        st.caption(now.kind.facts(now))
        st.page_link(RESULT, label="Why", icon=":material/arrow_forward:")


def _open_preset() -> None:
    name: str | None = st.session_state[_PRESET]
    st.session_state[_PRESET] = None
    if name is not None:
        session.change(lambda on: on.opened(Draft(name, name)))


def _upload(key: str) -> None:
    """Open a file as a plan, or as what another program has written, and close the popover by
    renewing it; what is no text stays there, where the page says so."""
    file = st.session_state[key]
    if file is None:
        return
    data = file.getvalue()
    if launch_file.take(file.name, data):
        session.want_section(launch_file.SECTION)
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return
        if "\0" in text:
            return
        session.change(lambda on: on.opened(Draft(file.name, file.name, text)))
    st.session_state.pop(_TEXT, None)
    st.session_state[_TURN] = st.session_state.get(_TURN, 0) + 1


def _retype() -> None:
    text: str = st.session_state[_TEXT]
    session.change(lambda on: on.changed(lambda plan: replace(plan, text=text)))


page()
