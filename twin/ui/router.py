"""The app's router: what `twin ui` has streamlit run. Pages are the scripts in `pages`."""

from __future__ import annotations

import logging

# Libraries that draw look for pandas among the modules that are loaded, and take it as it is: while
# another visitor's thread still loads it, that is half of it. So it is loaded before any page runs.
import pandas as pd  # noqa: F401  # pyright: ignore[reportUnusedImport]
import streamlit as st

from twin.ui import session
from twin.ui.bar import awaiting, bar
from twin.ui.places import (
    ASSUMPTIONS,
    CATALOG,
    COMPARE,
    EXPLORE,
    ITERATION,
    MEASURED,
    MEMORY,
    NETWORK,
    PLAN,
    REALITY,
    RESULT,
    SERVING,
    TRACK,
    WEIGHT_UPDATE,
)
from twin.ui.view import say_bug

_LOG = logging.getLogger(__name__)


def route() -> None:
    """Run the page that the visitor asks for, beside the bar."""
    st.set_page_config(page_title="Twin", layout="wide", initial_sidebar_state=318)
    measured = st.Page(MEASURED, title="Measured")
    track = st.Page(TRACK, title="Track")
    reality = st.Page(REALITY, title="Reality")
    update = st.Page(WEIGHT_UPDATE, title="Weight update")
    iteration = st.Page(ITERATION, title="RL iteration")
    # Pages under an empty name stand by themselves; the others open from their section, so that
    # nothing is hidden under "more" in a window of 1,280 pixels.
    page = st.navigation(
        {
            "": [
                st.Page(PLAN, title="Plan", default=True),
                st.Page(RESULT, title="Result"),
                st.Page(MEMORY, title="Memory"),
                st.Page(NETWORK, title="Network"),
                st.Page(COMPARE, title="Compare"),
                st.Page(EXPLORE, title="Explore"),
            ],
            "Inference & RL": [st.Page(SERVING, title="Serving"), update, iteration],
            "Real runs": [measured, track, reality],
            "Inputs": [
                st.Page(CATALOG, title="Catalog"),
                st.Page(ASSUMPTIONS, title="Assumptions"),
            ],
        },
        position="top",
    )
    session.begin()
    if session.wants_update() and page is not update:
        st.switch_page(update)
    run = session.measured() if page is measured else None
    session.write_link(session.update() if page is update else None, run)
    session.say_broken_link()
    try:
        # No plan of the desk is on some pages.
        place = st.sidebar if page in (track, reality, update, iteration) else bar()
        page.run()
        if session.awaited():
            with place:
                awaiting()
    except Exception as error:  # noqa: BLE001  the last stop: what is left is our bug
        _LOG.error("a page failed", exc_info=error)
        say_bug(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    route()
