"""The software of a plan in words, and the step under other stacks of the catalog."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.explore.study.software import sentence, software_table
from twin.ui.answers import GLANCE, stacks, studied
from twin.ui.editor import Values, at
from twin.ui.place import OpenPlan, ready, table

_HEADING: Final = "Under other software"


def about(values: Values, *, assumed: bool) -> str:
    """What framework and which host the values of a scenario name, in a few sentences; `assumed`:
    they name the typical stack of the layout, because none is written."""
    profile = f"Kernels are those of calibration `{at(values, 'calibration.name')}`."
    framework, release = at(values, "software.framework"), at(values, "software.release")
    if framework is None:
        return (
            "Bare kernels: the host takes `calibration.dispatch` per kernel and never waits for "
            f"the device. That is the fast end. {profile} Choose the stack that trains."
        )
    chosen = "Assumed, because no software is written: choose the stack that trains. "
    chosen = chosen if assumed else ""
    if at(values, "software.host") is None:
        return (
            f"{chosen}{framework}; {release}. The host takes `calibration.dispatch` per kernel. "
            f"{profile}"
        )
    waits = ", ".join(at(values, "software.host.waits") or ())
    device = f"waits for the device at {waits}" if waits else "never waits for the device"
    return f"{chosen}{framework}; {release}. The host has counted work and {device}. {profile}"


def other_software(shown: OpenPlan) -> None:
    """The step under each stack that its GPU has a calibration for; simulated when opened."""
    box = st.expander(
        _HEADING, icon=":material/layers:", key="under other software", on_change="rerun"
    )
    if not box.open:
        return
    with box:
        words = "Simulating the step under every software stack of its GPU."
        found = ready(studied(stacks, shown.asked), shown.plan, words, GLANCE)
        if found is not None:
            built = software_table(found)
            st.markdown(sentence(found))
            table(built.records())
            st.caption(f"{built.caption} Set the software on the page Plan.")
