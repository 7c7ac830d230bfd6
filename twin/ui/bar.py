"""The bar beside every page: which plan is open, what it is compared with, what the twin says of
it, and how to hand it on."""

from __future__ import annotations

from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin.answers import Run
from twin.kinds.base import kind_of
from twin.ui import session
from twin.ui.desk import MOST_PLANS, Desk
from twin.ui.links import COMFORTABLE, address
from twin.ui.parts import changes, figures
from twin.ui.places import ITERATION
from twin.ui.session import widget_key
from twin.ui.share import export, portable
from twin.ui.view import View, view

_PLAN: Final = "open plan"
_BASELINE: Final = "baseline"
_NAME: Final = "name of the plan"
_FIGURES: Final = (("step_seconds", "mfu"), ("days", "cost_usd"))
"""The figures that decide, on every page."""
_POLL: Final = 0.5
"""Seconds between two looks at the work in the background."""
_AS_WRITTEN: Final = -1
"""Stands for the open plan's scenario without its edits."""


def bar() -> DeltaGenerator:
    """Draw the bar; returns the place in it for what is still being worked on."""
    shown = view()
    with st.sidebar:
        _plans(shown.desk)
        _verdict(shown)
        place = st.container()
        with st.container(horizontal=True, gap="xsmall"):
            _manage(shown.desk)
            _share(shown.desk)
            with st.popover("Export"):
                export(shown)
        changes(shown.plan)
    return place


@st.fragment(run_every=_POLL)
def awaiting() -> None:
    """How far everything is that the page could not show yet; once one of it is done, the whole
    page is drawn again. One look at all of it: several such timers would starve each other."""
    for pending, words in session.awaited():
        if pending.future.done():
            st.rerun()
        st.progress(min(1.0, pending.progress.share), words)


def _plans(desk: Desk) -> None:
    """Which plan is open, and which one is the baseline."""
    names = {at: plan.title for at, plan in enumerate(desk.plans)}
    key = widget_key(_PLAN, desk.shown, names.values())
    st.selectbox(
        "Plan",
        list(names),
        desk.shown,
        format_func=names.__getitem__,
        key=key,
        on_change=_open,
        args=(key,),
    )
    baseline = _AS_WRITTEN if desk.baseline is None else desk.baseline
    choices = [_AS_WRITTEN, *names]
    labels = {_AS_WRITTEN: f"{desk.open.scenario}, as written"} | names
    key = widget_key(_BASELINE, baseline, labels.values())
    st.selectbox(
        "Compared with",
        choices,
        choices.index(baseline),
        format_func=labels.__getitem__,
        key=key,
        on_change=_compare_with,
        args=(key,),
        help="The baseline: changes on every page are against it.",
    )


def _verdict(shown: View) -> None:
    """The verdict in three words, and the figures that decide."""
    now, better = shown.reply.now, shown.reply.better
    if not isinstance(now, Run):
        st.badge("Invalid", icon=":material/error:", color="red")
        return
    with st.container(horizontal=True):
        if now.report.fits:
            st.badge("Fits", icon=":material/check_circle:", color="green")
        else:
            st.badge("Does not fit", icon=":material/block:", color="red")
        if better is not None:
            st.badge("fast estimate", icon=":material/speed:", color="orange")
    if (words := kind_of(now.scenario).scope(now.scenario)) is not None:
        st.caption(f":material/info: This is {words}")
        if now.scenario.rl and now.scenario.rl.iteration:
            st.page_link(ITERATION, label="Its iteration", icon=":material/arrow_forward:")
    figures(shown, _FIGURES, width="content")
    if shown.coming is not None:
        what = "Shown is the fast estimate; the step" if better else "The baseline"
        session.awaited().append((shown.coming, f"{what} is being played event by event."))


def _manage(desk: Desk) -> None:
    """Variants of the open plan: another one, another name, or one fewer."""
    with st.popover("Variants"):
        st.button(
            "Duplicate as a variant",
            on_click=_duplicate,
            disabled=len(desk.plans) >= MOST_PLANS,
            help=f"A copy of this plan to edit beside it; up to {MOST_PLANS} plans.",
            width="stretch",
        )
        key = widget_key(_NAME, desk.open.name)
        st.text_input("Name of this plan", desk.open.name, key=key, on_change=_rename, args=(key,))
        st.button(
            "Remove this plan",
            on_click=_remove,
            disabled=len(desk.plans) == 1,
            width="stretch",
        )


def _share(desk: Desk) -> None:
    """The link that opens the same page with the same desk elsewhere."""
    with st.popover("Share"):
        link = address(st.context.url or "", portable(desk, session.the_known()))
        st.markdown("This link opens the same page, with all plans and edits:")
        st.code(link, language=None, wrap_lines=True, height=120)
        if len(link) > COMFORTABLE:
            st.caption(
                f"It has {len(link):,} characters, and some programs cut links of more than "
                f"{COMFORTABLE:,}. To be safe, export the scenario and send the file."
            )


def _open(key: str) -> None:
    at: int = st.session_state[key]
    session.change(lambda desk: Desk(desk.plans, at, desk.baseline))


def _compare_with(key: str) -> None:
    at: int = st.session_state[key]
    baseline = None if at == _AS_WRITTEN else at
    session.change(lambda desk: Desk(desk.plans, desk.shown, baseline))


def _duplicate() -> None:
    session.change(lambda desk: desk.added(desk.open))


def _rename(key: str) -> None:
    session.change(lambda desk: desk.renamed(st.session_state[key]))


def _remove() -> None:
    session.change(lambda desk: desk.removed(desk.shown))
