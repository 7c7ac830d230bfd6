"""What one visitor has on the desk: the only module that keeps anything between two runs of a page.

Nothing here is shared between sessions; the link in the address bar is written from it, and read
once, when the session begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import streamlit as st

from twin.ui.desk import Desk, Draft
from twin.ui.jobs import Pending
from twin.ui.known import Known, known
from twin.ui.links import LONGEST, BrokenLinkError, decode, encode

_DESK: Final = "desk"
_BROKEN: Final = "broken link"
_KNOWN: Final = "known scenarios"
_AWAITED: Final = "awaited"


def begin() -> None:
    """Look at the scenarios' files; on the first run, put on the desk what the link says."""
    st.session_state[_KNOWN] = known()
    st.session_state[_AWAITED] = []
    if _DESK not in st.session_state:
        st.session_state[_DESK] = _first_desk(the_known())


def the_known() -> Known:
    """The scenarios that the app knows by name, as their files stood when this run began."""
    return st.session_state[_KNOWN]


def awaited() -> list[tuple[Pending[Any], str]]:
    """What this run of the page could not show yet, each with what it is."""
    return st.session_state[_AWAITED]


def desk() -> Desk:
    """What is on the desk."""
    return st.session_state[_DESK]


def change(what: Callable[[Desk], Desk]) -> None:
    """Change the desk: what the callbacks of widgets do."""
    st.session_state[_DESK] = what(desk())


def widget_key(name: str, shown: object, labels: Iterable[str] = ()) -> str:
    """The key of a widget that shows a value of the desk; a fresh one where the widget has another
    value by now, as after an undo, or where the `labels` of its options are others: the browser
    would send back the label of before.

    The value goes to the widget as its default, not into its state: a page that is left before the
    browser has drawn it would report an empty state as if the visitor had typed it."""
    name = "|".join((name, *labels))
    counter = f"{name}, renewed"
    renewed: int = st.session_state.get(counter, 0)
    key = f"{name}#{renewed}"
    if key in st.session_state and st.session_state[key] != shown:
        st.session_state[counter] = renewed + 1
        return f"{name}#{renewed + 1}"
    return key


def write_link() -> None:
    """Put the desk into the address bar, unless it is longer than servers take."""
    query = encode(desk())
    if sum(len(text) for values in query.values() for text in values) > LONGEST:
        query = {}
    if {key: st.query_params.get_all(key) for key in st.query_params} != query:
        st.query_params.from_dict(query)


def say_broken_link() -> None:
    """Why the link that was followed opened nothing, until the visitor has read it."""
    reason = st.session_state.get(_BROKEN)
    if reason is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(
            f"This link could not be opened. {reason} A shipped scenario is shown instead; ask for "
            "the link, or for the scenario's file, again.",
            icon=":material/link_off:",
        )
        st.button("Got it", on_click=lambda: st.session_state.pop(_BROKEN, None))


def _first_desk(scenarios: Known) -> Desk:
    start = Desk((Draft(scenarios.first, scenarios.first),))
    query = {key: st.query_params.get_all(key) for key in st.query_params}
    if not {"v", "plan"} & set(query):
        return start
    try:
        found = decode(query)
        _refuse_unknown(found, scenarios)
    except BrokenLinkError as error:
        st.session_state[_BROKEN] = str(error)
        return start
    return found


def _refuse_unknown(found: Desk, scenarios: Known) -> None:
    for plan in found.plans:
        if plan.text is None and plan.scenario not in scenarios.files:
            raise BrokenLinkError(
                f"This app knows no scenario `{plan.scenario[:80]}`: it is a file of the one who "
                "made the link, or has another name now."
            )
