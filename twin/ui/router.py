"""The app's router: what `twin ui` has streamlit run. Pages are the scripts in `pages`; everything
else is a section of a page."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Final

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from twin.ui import COMPARE, EVIDENCE, EXPLORE, NEW, PLAN, RESULT, session
from twin.ui.place import say_bug
from twin.ui.sidebar import awaiting, sidebar
from twin.ui.warm import DRAWING

_LOG = logging.getLogger(__name__)
_MOVED: Final = {
    "memory": (RESULT, "Memory"),
    "network": (RESULT, "Network"),
    "serving": (RESULT, "Serving"),
    "weight_update": (RESULT, ""),
    "iteration": (RESULT, ""),
    "measured": (EVIDENCE, "Real run"),
    "track": (EVIDENCE, "Live run"),
    "reality": (EVIDENCE, "Accuracy"),
    "catalog": (PLAN, "Catalog"),
    "assumptions": (EXPLORE, "Sensitivity"),
}
"""Pages of earlier versions, and the sections that took their place: old links keep working."""


def route() -> None:
    """Run the page that the visitor asks for, beside the sidebar."""
    with DRAWING:
        _route()


def _route() -> None:
    st.set_page_config(page_title="Twin", layout="wide", initial_sidebar_state=318)
    pages = [
        st.Page(NEW, title="New plan", default=True),
        st.Page(PLAN, title="Plan"),
        st.Page(RESULT, title="Result"),
        st.Page(COMPARE, title="Compare"),
        st.Page(EXPLORE, title="Explore"),
        st.Page(EVIDENCE, title="Evidence"),
    ]
    moved = [st.Page(_nothing, title=old, url_path=old, visibility="hidden") for old in _MOVED]
    page = st.navigation([*pages, *moved], position="top")
    session.begin(page.title)
    if page.url_path in _MOVED:
        target, section = _MOVED[page.url_path]
        session.want_section(section)
        st.switch_page(target)
    is_new = page.url_path == ""
    if session.leads_to_plan() and is_new:
        st.switch_page(PLAN)
    session.say_broken_link()
    try:
        if is_new:  # a question, not a plan: there is nothing to say beside it
            page.run()
            session.write_question()
        else:
            _of_a_plan(page)
    except Exception as error:  # noqa: BLE001  the last stop: what is left is our bug
        _LOG.error("a page failed", exc_info=error)
        say_bug(f"{type(error).__name__}: {error}")


def _of_a_plan(page: StreamlitPage) -> None:
    """A page about the open plan: what it shows of which plan, since on a phone the sidebar is
    closed; then the page, and what stands beside every page."""
    of_plan = "" if page.title == "Evidence" else f": {session.workspace().open.title}"
    st.title(f"{page.title}{of_plan}", anchor=False)
    # Libraries that draw take pandas as they find it: half loaded, by another thread, it fails.
    import_module("pandas")
    session.write_link(page.title)
    if session.is_another(page.title):  # who comes wants the page; who edits, the answer
        page.run()
        place = sidebar(page.title)
    else:
        place = sidebar(page.title)
        page.run()
    if session.awaited():
        with place:
            awaiting()


def _nothing() -> None:
    """The content of a page that has moved."""


if __name__ == "__main__":
    route()
