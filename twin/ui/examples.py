"""What pages show while nothing of the visitor's own is there, and ways in beside a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from twin.loading.files import table
from twin.ui import COMPARE, PLAN, launch_file, session
from twin.ui.answers import Failure, checked, scenario_of
from twin.ui.place import ask_about
from twin.ui.workspace import Draft, Workspace

BESIDE: Final[Mapping[str, str]] = table(__name__, "BESIDE")
"""The shipped scenario that stands beside a shipped scenario."""
WAYS: Final = (
    "kimi-k2-rl-256xh800",
    "kimi-k2-rl-256xh800-disaggregated",
    "kimi-k2-rl-256xh800-one-step-off",
)
"""The same iteration with rollouts and training on the same GPUs, and apart."""


def beside(workspace: Workspace) -> Workspace:
    """The workspace with an example beside its only plan: a shipped scenario like it, else the plan
    on twice the nodes, where that fits. Unchanged where plans differ already."""
    plan = workspace.open
    if len(workspace.compared) > 1:
        return workspace
    if plan.text is None and plan.scenario in BESIDE:
        name = BESIDE[plan.scenario]
        return workspace.added(Draft(name, name), show=False)
    scenario = scenario_of(ask_about(plan))
    if isinstance(scenario, Failure):
        return workspace
    nodes = 2 * scenario.cluster.nodes
    more = plan.edited("cluster.nodes", str(nodes))
    found = checked(ask_about(more))
    if isinstance(found, Failure) or not found.fits:
        return workspace
    named = Draft(f"{plan.name} on {nodes} nodes", more.scenario, more.text, more.edits)
    return workspace.added(named, show=False)


def doors() -> None:
    """Ways in for those who bring something else than a question."""
    with st.container(horizontal=True, gap="medium"):
        if st.button("Import a launch or a recipe", type="tertiary", icon=":material/terminal:"):
            session.want_section(launch_file.SECTION)
            st.switch_page(PLAN)
        if st.button("RL: split or colocated?", type="tertiary", icon=":material/compare_arrows:"):
            first, *others = (Draft(name, name) for name in WAYS)
            session.change(lambda on: on.opened(first, *others))
            st.switch_page(COMPARE)
        if st.button("Browse shipped scenarios", type="tertiary", icon=":material/folder_open:"):
            st.switch_page(PLAN)
