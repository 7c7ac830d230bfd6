"""The software of a plan in words, and the step under other stacks of the catalog."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.explore.study.software import sentence, software_table
from twin.ui.answers import GLANCE, stacks, studied
from twin.ui.editor import Values, at
from twin.ui.place import OpenPlan, ready, table

_HEADING: Final = "Under other software"


def about(values: Values) -> str:
    """What framework and which host the values of a scenario name, in one line."""
    profile = f"Kernels are those of calibration `{at(values, 'calibration.name')}`."
    framework, release = at(values, "software.framework"), at(values, "software.release")
    if framework is None:
        return (
            "Not set: the host takes `calibration.dispatch` per kernel and never waits for the "
            f"device. {profile} Choose the stack that trains."
        )
    if at(values, "software.host") is None:
        return (
            f"{framework}; {release}. The host takes `calibration.dispatch` per kernel. {profile}"
        )
    waits = ", ".join(at(values, "software.host.waits") or ())
    device = f"waits for the device at {waits}" if waits else "never waits for the device"
    return f"{framework}; {release}. The host has counted work and {device}. {profile}"


def other_software(shown: OpenPlan) -> None:
    """The step under each stack that its GPU has a calibration for; answered when opened."""
    box = st.expander(
        _HEADING, icon=":material/layers:", key="under other software", on_change="rerun"
    )
    if not box.open:
        return
    with box:
        words = "Estimating the step under every software stack of its GPU."
        found = ready(studied(stacks, shown.asked), shown.plan, words, GLANCE)
        if found is not None:
            built = software_table(found)
            st.markdown(sentence(found))
            table(built.records())
            st.caption(f"{built.caption} Set the software on the page Plan.")
