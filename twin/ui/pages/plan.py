"""Plan: the scenario's fields, and what the twin says of them while they are edited."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.report import resolved
from twin.runs import Run
from twin.scenario import Scenario
from twin.ui import desk, editor, session
from twin.ui.answers import Failure, Refusal, scenario_of
from twin.ui.editor import Form
from twin.ui.fields import Values, schema, sections, with_kinds
from twin.ui.parts import sentence
from twin.ui.places import RESULT
from twin.ui.view import View, ask_about, say, view

_PRESET: Final = "open a scenario"
_FILE: Final = "scenario file"
_TEXT: Final = "scenario text"


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    _say(shown)
    _open()
    before = scenario_of(ask_about(shown.plan.original))
    if isinstance(before, Scenario):
        _edit(shown, resolved(before))
    else:
        _mend(shown, before)


def _open() -> None:
    """Where plans come from: a shipped scenario, or a file."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Open a scenario",
            list(session.the_known().files),
            index=None,
            key=_PRESET,
            placeholder="Choose a scenario to start from",
            on_change=_open_preset,
            width=420,
            help="Takes the place of the open plan, or a place beside it where edits would be "
            "lost.",
        )
        with st.popover("Upload a file", icon=":material/upload:"):
            st.file_uploader("A scenario in YAML", ["yaml", "yml"], key=_FILE, on_change=_upload)


def _edit(shown: View, before: Values) -> None:
    """Every section of the scenario."""
    scenario, edits = scenario_of(shown.asked), dict(shown.plan.edits)
    valid = isinstance(scenario, Scenario)
    now = with_kinds(resolved(scenario) if valid else before, {} if valid else edits)
    problems = shown.reply.now.problems if isinstance(shown.reply.now, Refusal) else ()
    form = Form(shown.plan, now, before, problems)
    for section in sections(schema(), now):
        editor.edit(form, section)


def _mend(shown: View, wrong: Failure) -> None:
    """A scenario that cannot be read, as text: mended here, it becomes fields."""
    if shown.plan.text is None:
        say(shown.plan.original, wrong)
        return
    st.caption("This file cannot be read as a scenario yet. Mend it here.")
    if _TEXT not in st.session_state:
        st.session_state[_TEXT] = shown.plan.text
    st.text_area("Text of the scenario", key=_TEXT, height=500, on_change=_retype)


def _say(shown: View) -> None:
    """The answer above the fields: it changes with every edit."""
    now = shown.reply.now
    if not isinstance(now, Run):
        say(shown.plan, now)
        return
    sentence(now.report)
    if not now.report.fits:
        st.page_link(
            RESULT, label="Why, and the nearest plans that fit", icon=":material/arrow_forward:"
        )


def _open_preset() -> None:
    name: str | None = st.session_state[_PRESET]
    st.session_state[_PRESET] = None
    if name is not None:
        session.change(lambda on: on.opened(desk.Draft(name, name)))


def _upload() -> None:
    file = st.session_state[_FILE]
    if file is not None:
        text = file.getvalue().decode("utf-8", errors="replace")
        st.session_state.pop(_TEXT, None)
        session.change(lambda on: on.opened(desk.Draft(file.name, file.name, text)))


def _retype() -> None:
    text: str = st.session_state[_TEXT]
    session.change(lambda on: on.changed(lambda plan: desk.retyped(plan, text)))


page()
