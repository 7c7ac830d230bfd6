"""Network: who sits where, how much each class of link carries, whether the all-to-all of the
experts can hide, and which collectives show."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.answers import Run
from twin.explore.study.figures import hidden_degrees
from twin.explore.study.hidden import HiddenExpert
from twin.figures.network import GROUP_WORDS, collectives, links, topology, windows
from twin.reports.network_map import NetworkMap, network_map
from twin.reports.network_use import NetworkUse, network_use
from twin.ui.answers import studied
from twin.ui.pictures import place, theme
from twin.ui.studies import hiding
from twin.ui.view import View, run_or_stop, say, view, waiting

_NOBODY: Final = "none"


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    run, name = run_or_stop(shown), shown.plan.title
    use = network_use(run.plan, run.trace)
    st.subheader("The cluster and its links")
    _topology(network_map(run.plan), use, name)
    place(links(use, name, theme()), key="links")
    if any(one.demand.alone for one in run.report.overlap):
        _overlap(shown, run)
    st.subheader("Collectives")
    place(collectives(use, name, theme()), key="collectives")


def _overlap(shown: View, run: Run) -> None:
    """Window and demand of each kind of layer; the degrees of expert parallelism when asked for,
    since each is a run of its own."""
    st.subheader("Can the experts' all-to-all hide?")
    place(windows(run.report.overlap, shown.plan.title, theme()), key="windows")
    box = st.expander(
        "Which expert parallelism stays hidden? (takes a run for each degree)",
        icon=":material/visibility_off:",
        key="hidden expert",
        on_change="rerun",
    )
    if not box.open:
        return
    with box:
        pending = studied(hiding, shown.asked)
        found = pending.within(0.05)
        if found is None:
            waiting(pending, "Playing the plan at each degree of expert parallelism.")
        elif isinstance(found, HiddenExpert):
            place(hidden_degrees(found, shown.plan.title, theme()), key="degrees")
        else:
            say(shown.plan, found)


@st.fragment
def _topology(network: NetworkMap, use: NetworkUse, name: str) -> None:
    """The drawing, with one group of ranks shown on it."""
    groups = [_NOBODY, *network.groups]
    # The group that communicates most is of the axis of the longest collective.
    longest = use.collectives[0].axis if use.collectives else _NOBODY
    group = st.segmented_control(
        "Show where the first rank's group sits",
        groups,
        default=longest if longest in groups else groups[-1],
        required=True,
        format_func=lambda one: GROUP_WORDS.get(one or _NOBODY, _NOBODY).capitalize(),
        key=f"group of {groups}",
    )
    picture = topology(network, use, None if group == _NOBODY else group, name, theme())
    place(picture, key="topology")


page()
