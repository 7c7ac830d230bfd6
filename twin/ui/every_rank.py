"""The timeline of every rank, by ranks and window, from a stored `--fidelity all`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import streamlit as st

from twin.answers import Run
from twin.answers.run_store import Key, glimpse, has, key
from twin.engine.expert_rows import expert_rows
from twin.engine.trace import Trace
from twin.figures.charts import Control, View
from twin.figures.palette import Theme
from twin.figures.plotly import Picture
from twin.figures.timeline import LANES, start_window, timeline
from twin.figures.uneven import waiting_map
from twin.ui.answers import studied, who_waits
from twin.ui.place import OpenPlan, place, ready, show_views, theme

_TOGETHER: Final = 8
"""Ranks that are shown at once."""


def every_rank(shown: OpenPlan, run: Run) -> None:
    """The section, where every rank was simulated; else how to have that done."""
    if not run.kind.is_stored:
        return
    wanted = key(run.scenario, "all")
    whole = _roles(wanted) if has(wanted) else None
    if whole is None:
        st.caption("`twin run SCENARIO --fidelity all` simulates every rank, and opens here.")
        return
    starts = range(0, len(whole.roles), _TOGETHER)
    ends = {at: min(at + _TOGETHER, len(whole.roles)) - 1 for at in starts}
    names = {at: f"{whole.roles[at]} to {whole.roles[end]}" for at, end in ends.items()}
    ranks = Control("ranks", "Ranks", "choice", 0, names)
    window = Control(
        "window",
        "Window to look at, in seconds",
        "window",
        start_window(whole),
        end_ns=int(whole.spans.end.max(initial=1)),
    )
    lanes = Control("lanes", "Lanes", "choice", "compute", LANES)

    def draw(theme: Theme, chosen: Mapping[str, Any]) -> Picture:
        first = chosen["ranks"]
        own = range(first, ends[first] + 1)
        found = glimpse(wanted, chosen["window"], own)
        return timeline((found or whole).only(own), theme, chosen["window"], chosen["lanes"])

    view = View("Timeline", "Every rank", "every rank", draw, (ranks, window, lanes))
    show_views([view], shown.plan.name)
    if expert_rows(run.plan) is not None:
        _who_waits(shown, run)


def _who_waits(shown: OpenPlan, run: Run) -> None:
    """The map of the cluster, where expert ranks have rows of their own."""
    st.header("Who waits for the fullest expert ranks")
    asked = studied(who_waits, shown.asked)
    found = ready(asked, shown.plan, "Reading what every rank waits for.")
    if found is not None:
        gpus = run.plan.scenario.cluster.node.gpus
        place(
            waiting_map(found, gpus, run.report.name, theme()), key=f"who waits|{shown.plan.name}"
        )


@lru_cache(maxsize=4)
def _roles(wanted: Key) -> Trace | None:
    """What the first rank does, and the names of all."""
    return glimpse(wanted, (0, 2**62), range(1))
