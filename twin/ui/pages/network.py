"""Network: who sits where, how much each class of link carries, and which collectives show."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.figures.network import GROUP_WORDS, collectives, topology
from twin.report.network_map import NetworkMap, network_map
from twin.report.network_use import NetworkUse, network_use
from twin.ui.pictures import place, theme
from twin.ui.view import run_or_stop, view

_NOBODY: Final = "none"


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    run, name = run_or_stop(shown), shown.plan.title
    use = network_use(run.plan, run.trace)
    st.subheader("The cluster and its links")
    _topology(network_map(run.plan), use, name)
    st.subheader("Collectives")
    place(collectives(use, name, theme()), key="collectives")


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
