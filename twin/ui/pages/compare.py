"""Compare: the baseline and every other plan, their differences, and the effect of each edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from twin.answers import Run
from twin.explore.study.attribution import Attribution
from twin.figures.differences import attribution as figure
from twin.ui import examples, session
from twin.ui.answers import attributed, on_one_fabric, studied
from twin.ui.comparison import (
    Compared,
    attribution_rows,
    comparability,
    compared,
    input_rows,
    kpi_rows,
    why_not,
)
from twin.ui.place import (
    ask_about,
    place,
    ready,
    say,
    say_stopped,
    show_views,
    small,
    table,
    theme,
    waiting,
)
from twin.ui.workspace import MOST_PLANS, Draft, Workspace

_OWN: Final = (
    "To compare your own: add a scenario above, edit the plan, or duplicate it under Variants."
)
_ADD: Final = "add to the comparison"


def page() -> None:
    """Run the page once, top to bottom."""
    own = session.workspace()
    _add(own)
    workspace = examples.beside(own)
    if workspace != own:
        small(f"An example: {_titles(workspace)}. {_OWN}")
    found = compared(workspace)
    _say(found)
    if found.answers[0][1] is None:  # nothing to compare with
        st.skeleton()
        return
    runs = _of_one_kind({plan.title: now for plan, now in found.answers if isinstance(now, Run)})
    if len(runs) < 2:
        if len(found.answers) < 2:
            st.info(f"There is nothing to compare yet. {_OWN}", icon=":material/balance:")
        return
    _compare(list(runs.values()))
    kind = next(iter(runs.values())).kind
    if "attribution" not in kind.refusals:
        st.header("Effect of each edit")
        _attributions(workspace, runs)
    if kind.shares_fabric:
        st.header("On one fabric")
        _on_one_fabric(workspace, runs)


def _say(found: Compared) -> None:
    """Why plans have no answer, or none yet."""
    for plan, now in found.answers:
        if now is not None and not isinstance(now, Run):
            say(plan, now)
    if found.stopped:
        say_stopped("Stopped plans are left out.", found.stopped)
    if found.coming:
        waiting("The other plans are being simulated.", *found.coming)


def _titles(workspace: Workspace) -> str:
    return " and ".join(f"**{plan.title}**" for plan in workspace.compared)


def _add(workspace: Workspace) -> None:
    """More scenarios beside the open plan."""
    here = {plan.scenario for plan in workspace.plans}
    st.selectbox(
        "Add a scenario to the comparison",
        [name for name in session.known().files if name not in here],
        index=None,
        key=_ADD,
        placeholder="Choose a scenario",
        on_change=_added,
        width=420,
        disabled=len(workspace.plans) >= MOST_PLANS,
    )


def _added() -> None:
    name: str | None = st.session_state[_ADD]
    st.session_state[_ADD] = None
    if name is not None:
        session.change(lambda on: on.added(Draft(name, name), show=False))


def _of_one_kind(runs: Mapping[str, Run]) -> Mapping[str, Run]:
    """The answers of the baseline's kind; the page names the others."""
    names = list(runs)
    same = {name: run for name, run in runs.items() if run.kind.name == runs[names[0]].kind.name}
    for name in names:
        if name not in same:
            title = runs[names[0]].kind.title
            st.caption(f"**{name}** is {runs[name].kind.title}; the baseline is {title}.")
    return same


def _compare(runs: list[Run]) -> None:
    kind = runs[0].kind
    comparison = kind.compare([run.report for run in runs])
    if unfit := why_not(comparison):
        st.warning(unfit, icon=":material/block:")
    for note in comparability(comparison):
        st.warning(note, icon=":material/balance:")
    first, *others = kind.comparison_figures(runs, comparison)
    show_views([first], "compare")
    _figures(comparison, kind)
    st.header("Inputs that differ")
    rows = input_rows(comparison)
    if rows:
        table(rows)
    else:
        st.caption("None: the plans are the same.")
    show_views(others, "compare")


def _figures(comparison: Any, kind: Any) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.header("Key figures")
        few = st.toggle("Differences only", value=True, key="differences only")
    rows = kpi_rows(comparison, kind.kpis, changed_only=few)
    if rows:
        table(rows)
    else:
        st.caption("All key figures are the same.")


def _attributions(workspace: Workspace, runs: Mapping[str, Run]) -> None:
    """For every plan beside the baseline, its difference split over the inputs that differ."""
    baseline, *others = workspace.compared
    for plan in others:
        if plan.title not in runs or baseline.title not in runs:
            continue
        words = f"Splitting the difference of {plan.title} over its edits."
        asked = studied(attributed, ask_about(baseline), ask_about(plan))
        found = ready(asked, plan, words, 0)
        if found is not None:
            _show(baseline.title, plan, found)


def _on_one_fabric(workspace: Workspace, runs: Mapping[str, Run]) -> None:
    """What the baseline and every other plan lose to each other, where a person asks."""
    words = "Each leaf switch has nodes of both plans, which share its uplinks."
    if not st.toggle("Simulate both plans on one fabric", key="on one fabric", help=words):
        return
    baseline, *others = workspace.compared
    for plan in others:
        if plan.title not in runs or baseline.title not in runs:
            continue
        asked = studied(on_one_fabric, ask_about(baseline), ask_about(plan))
        found = ready(asked, plan, f"Simulating {plan.title} beside {baseline.title}.", 0)
        if found is not None:
            named = found.named(baseline.title, plan.title)
            st.markdown("  \n".join(named.sentences()))
            for block in named.tables():
                st.caption(f"{block.title}. {block.caption}")
                table(block.records())


def _show(base: str, plan: Draft, found: Attribution) -> None:
    picture = figure(
        (base, found.base_ns / 1e9),
        (plan.title, found.other_ns / 1e9),
        [(cause.name, cause.ns / 1e9) for cause in found.causes],
        theme(),
    )
    place(picture, key=f"attribution {plan.name}")
    st.caption(f"Averaging: {found.method}.")
    with st.expander("All effects", icon=":material/list:"):
        table(attribution_rows(found))


page()
