"""Plan: the scenario's fields, and what the twin says of them while they are edited."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.answers import Run
from twin.errors import render
from twin.reports import resolved
from twin.reports.numbers import show
from twin.scenario import Scenario
from twin.ui import desk, editor, session
from twin.ui.answers import Failure, Refusal, scenario_of
from twin.ui.editor import Form
from twin.ui.fields import schema, sections, with_kinds
from twin.ui.parts import facts, sentence
from twin.ui.places import RESULT, WEIGHT_UPDATE
from twin.ui.updates import Update, answer
from twin.ui.view import View, ask_about, code, say, view

_PRESET: Final = "open a scenario"
_UPDATE: Final = "open a weight update"
_FILE: Final = "scenario file"
_TEXT: Final = "scenario text"
_TURN: Final = "files opened"


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    before = scenario_of(ask_about(shown.plan.original))
    _say(shown, before)
    _open()
    _updates()
    if isinstance(before, Scenario):
        _edit(shown, before)
    else:
        _mend(shown, before)


def _updates() -> None:
    """The way to the other kind of scenario, with an answer to go on."""
    known = session.the_known()
    if not known.updates:
        return
    *_, file = known.updates.values()
    found = answer(file, (), known.stamp)
    text = "**Weight updates**: new weights on their way to the inference engines."
    if isinstance(found, Update):
        seconds = show(found.report.kpis["update_seconds"], "s")
        text += f" {found.report.name}: {seconds}."
    with st.container(border=True):
        st.markdown(text)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.selectbox(
                "Open a weight update",
                list(known.updates),
                index=None,
                key=_UPDATE,
                placeholder="Choose a weight update",
                on_change=_open_update,
                width=420,
            )
            st.page_link(WEIGHT_UPDATE, label="How long, and why", icon=":material/arrow_forward:")


def _open() -> None:
    """Where plans come from: a shipped scenario, or a file."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Open a scenario",
            list(session.the_known().files),
            index=None,
            key=_PRESET,
            placeholder="Choose a training run to start from",
            on_change=_open_preset,
            width=420,
            help="Takes the place of the open plan, or a place beside it where edits would be "
            "lost.",
        )
        turn: int = st.session_state.get(_TURN, 0)
        key = f"{_FILE} {turn}"
        with st.popover("Upload a file", icon=":material/upload:", key=f"upload {turn}"):
            types = ["yaml", "yml"]
            file = st.file_uploader(
                "A scenario in YAML", types, key=key, on_change=_upload, args=(key,)
            )
            if file is not None:
                st.error(f"`{file.name}` is not text (UTF-8), so it cannot be a scenario.")


def _edit(shown: View, file: Scenario) -> None:
    """Every section of the scenario."""
    scenario, edits = scenario_of(shown.asked), dict(shown.plan.edits)
    valid = isinstance(scenario, Scenario)
    now = with_kinds(resolved(scenario if valid else file), {} if valid else edits)
    problems = shown.reply.now.problems if isinstance(shown.reply.now, Refusal) else ()
    form = Form(shown.plan, file, now, resolved(file), problems)
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


def _say(shown: View, before: Scenario | Failure) -> None:
    """The answer above the fields: it changes with every edit. What is wrong with a field stands
    beside it."""
    now = shown.reply.now
    if isinstance(now, Refusal) and isinstance(before, Scenario):
        st.error(
            f"**{shown.plan.title}** is invalid, or its layout impossible: see what is marked in "
            "red below.",
            icon=":material/error:",
        )
        keys = [section.key for section in sections(schema(), resolved(before))]
        paths = [(one, editor.wrong_with(one, shown.plan)) for one in now.problems]
        homeless = [one for one, path in paths if not any(editor.within(path, k) for k in keys)]
        if homeless:
            code(render(homeless))
        return
    if not isinstance(now, Run):
        say(shown.plan, now)
        return
    sentence(now.report)
    facts(now.plan)
    if not now.report.fits:
        st.page_link(
            RESULT, label="Why, and the nearest plans that fit", icon=":material/arrow_forward:"
        )


def _open_preset() -> None:
    name: str | None = st.session_state[_PRESET]
    st.session_state[_PRESET] = None
    if name is not None:
        session.change(lambda on: on.opened(desk.Draft(name, name)))


def _open_update() -> None:
    name: str | None = st.session_state[_UPDATE]
    st.session_state[_UPDATE] = None
    if name is not None:
        session.open_update(desk.Draft(name, name))


def _upload(key: str) -> None:
    """Open a file as a plan, and close the popover by renewing it; what is no text stays there,
    where the page says so."""
    file = st.session_state[key]
    if file is None:
        return
    try:
        text = file.getvalue().decode("utf-8-sig")
    except UnicodeDecodeError:
        return
    if "\0" in text:
        return
    st.session_state.pop(_TEXT, None)
    st.session_state[_TURN] = st.session_state.get(_TURN, 0) + 1
    session.change(lambda on: on.opened(desk.Draft(file.name, file.name, text)))


def _retype() -> None:
    text: str = st.session_state[_TEXT]
    session.change(lambda on: on.changed(lambda plan: desk.retyped(plan, text)))


page()
