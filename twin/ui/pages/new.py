"""New plan: a planner's question, a first answer at once, and the decision that a search comes to;
before anything is asked, a stored example."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import streamlit as st

from twin.explore.search.decision_page import Decision
from twin.explore.search.kept import kept
from twin.explore.search.new_plan import PlanQuestion, PlanRequest, first_answer
from twin.ui import session
from twin.ui.answers import Failure
from twin.ui.background import Pending, Stopped
from twin.ui.decided import show_decision
from twin.ui.examples import doors
from twin.ui.explore import work
from twin.ui.explore.questions import explored
from twin.ui.place import say_failure, say_stopped, small
from twin.ui.question import example, first_typed, form, keep_price, problems_of, question, request

_ASKED: Final = "new plan asked"
_KEPT: Final = "Finished layouts are kept: a stopped search goes on from there."
_POLL: Final = 1.0
"""Seconds between two looks at the search: the page should not take the time of its worker."""


def page() -> None:
    """Run the page once, top to bottom."""
    st.title("How many GPUs, how long, how much?")
    st.markdown(
        "Twin simulates training clusters. Say what you want to train. It finds the layout and the "
        "size of the cluster, and tells time and cost with their intervals."
    )
    if not session.asked_by_link("model"):
        doors()
    shown, answer = example()
    typed = session.typed()
    if not typed:
        typed |= first_typed(shown)
    asked = question(typed)
    found = request(asked) if isinstance(asked, PlanQuestion) else asked
    left, right = _columns(isinstance(asked, PlanQuestion) and (asked == shown or kept(asked)))
    with left:
        st.header("Your question")
        form(typed, problems_of(found))
    with right:
        if isinstance(asked, PlanQuestion) and isinstance(found, PlanRequest):
            _answer(asked, found, answer if asked == shown else None)
        else:
            st.header("Answer")
            st.info("Mend the marked fields first.", icon=":material/edit:")


def _columns(answered: object) -> tuple[Any, Any]:
    """The places of the question and of the answer. Who follows a link to a decision, perhaps on a
    phone, sees the decision first."""
    if answered and session.asked_by_link("model") and _ASKED not in st.session_state:
        right, left = st.columns([3, 2], gap="large")
    else:
        left, right = st.columns([2, 3], gap="large")
    return left, right


def _answer(asked: PlanQuestion, found: PlanRequest, stored: Decision | None) -> None:
    """The decision where there is one; else what can be said at once, and the search."""
    wanted = _wanted(asked)
    pending = None if wanted is None else explored(work.new_plan, wanted, wanted)
    made = (pending and pending.within(0.05)) or (kept(asked) if stored is None else None)
    if isinstance(made, Decision):
        st.header("Answer")
        small(f"Answered on {made.stamp}. The address of this page opens it again in this app.")
        show_decision(made, asked)
        return
    if stored is not None and pending is None:
        st.header("Example answer")
        small(f"Answered on {stored.stamp}. Change a field to ask your own question.")
        show_decision(stored, asked)
        return
    st.header("First answer")
    first, *rest = first_answer(found)
    st.info(f"**{first}**")
    if isinstance(made, Stopped):
        say_stopped(_KEPT, [made], "Go on")
    elif made is not None:
        say_failure("The search failed.", made)
        pending = None
    if pending is None:
        st.button("Find the plan", icon=":material/search:", on_click=_ask)
        small("Layouts are searched and the best are simulated: about a minute.")
    elif made is None:
        _watch(pending, found.seconds)
    for sentence in rest:
        st.markdown(sentence)


def _ask() -> None:
    """Search for what stands in the fields now: the page may have been half drawn when the button
    was clicked, and what it was drawn for a question ago."""
    asked = question(session.typed())
    if isinstance(asked, PlanQuestion):
        keep_price(asked)
        st.session_state[_ASKED] = (asked, datetime.now(UTC).date().isoformat())


def _wanted(asked: PlanQuestion) -> tuple[PlanQuestion, str] | None:
    """The search for this question, if this session asked for it."""
    wanted: tuple[PlanQuestion, str] | None = st.session_state.get(_ASKED)
    return wanted if wanted is not None and wanted[0] == asked else None


@st.fragment(run_every=_POLL)
def _watch(pending: Pending[Decision | Failure], seconds: float) -> None:
    """How far the search is, how long it may take, and a way to stop it."""
    if pending.future.done():
        st.rerun()
    progress = pending.progress
    left = round(seconds - progress.seconds)
    words = f"about {left} s left" if left > 0 else "finishing"
    share = max(progress.share, progress.seconds / seconds)
    st.progress(min(0.99, share), f"Searching and simulating layouts: {words}.")
    if st.button("Stop", icon=":material/stop:"):
        session.stop(pending)
        st.rerun()
    small(_KEPT)


page()
