"""What must be true: where the decision flips, by input; sliders over the main inputs; and how much
uncertain numbers move what is recommended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from twin.explore.search.candidates import Decision
from twin.explore.search.thresholds import Bar
from twin.figures.differences import Swing, tornado
from twin.figures.plotly import Picture
from twin.figures.search import Flip, InputRange, break_even
from twin.scenario import Scenario
from twin.ui.answers import studied
from twin.ui.exploring import work
from twin.ui.exploring.asked import SearchAsked
from twin.ui.exploring.course import explored, known, stop
from twin.ui.exploring.exports import as_json, hand_on
from twin.ui.exploring.found import Found
from twin.ui.exploring.search_view import curve_asked, study_of, wanted_search
from twin.ui.exploring.sliders import sliders
from twin.ui.exploring.work import Conditions
from twin.ui.pictures import place, table, theme
from twin.ui.view import View, say, waiting


def must_view(shown: View, scenario: Scenario) -> None:
    """The decision, sliders that answer at once, and on demand the values at which it flips."""
    decided = _decision(shown)
    if decided is None:
        return
    found, asked = decided
    if not found.contest.contenders:
        st.info(
            "No layout fits, so there is nothing to decide. Search for one that does, on larger "
            "clusters or with more degrees.",
            icon=":material/search_off:",
        )
        return
    st.caption(_about(found, searched=not asked.only))
    st.subheader("What if")
    sliders(found.contest, shown.plan.name)
    st.subheader("Where the decision flips")
    _conditions(shown, scenario, found, asked)


def _about(found: Found, *, searched: bool) -> str:
    contest = found.contest
    what = (
        f"The decision of the search, for {found.words}"
        if searched
        else f"The plan's own layout on other sizes, for {found.words}: search first, with a "
        "deadline or a budget, to decide between layouts"
    )
    return f"{what}. {len(contest.contenders):,} layouts that fit may be chosen."


def _decision(shown: View) -> tuple[Found, SearchAsked] | None:
    """What has been searched; without a search, the plan's own layout over sizes."""
    wanted = wanted_search(shown)
    pending = known(study_of(wanted), wanted) if wanted is not None else None
    if wanted is not None and pending is not None:
        found = pending.within(0.05)
        if isinstance(found, Found):
            return found, wanted
        if found is None:
            waiting(pending, "The search is at work; its decision comes here.")
            return None
    other = studied(work.scaling, shown.asked)
    sizes = other.within(0.4)
    if sizes is None:
        waiting(other, "Trying the plan's own layout on other sizes of the cluster.")
    elif isinstance(sizes, Found):
        return sizes, curve_asked(shown, sizes)
    else:
        say(shown.plan, sizes)
    return None


def _conditions(shown: View, scenario: Scenario, found: Found, asked: SearchAsked) -> None:
    """The thresholds, once they are asked for."""
    question = (asked, tuple(one.fidelity for one in found.spots))
    kept = known(work.conditions, question)
    if kept is None:
        st.caption(
            "Every input is moved by itself over its range until the decision flips: some hundred "
            "answers of the fast path, a minute or two."
        )
        if not st.button("Find the thresholds", icon=":material/swap_horiz:", type="primary"):
            return
    pending = explored(work.conditions, question, (found.contest,))
    made = pending.within(0.05)
    if made is None:
        with st.container(horizontal=True, vertical_alignment="center"):
            waiting(pending, "Moving every input until the decision flips.")
            st.button(
                "Stop",
                icon=":material/stop:",
                on_click=lambda: stop(work.conditions, question),
            )
        return
    if not isinstance(made, Conditions):
        say(shown.plan, made)
        return
    _show(scenario, found, asked, made)


def _show(scenario: Scenario, found: Found, asked: SearchAsked, made: Conditions) -> None:
    rows = [runway(one) for one in made.document["thresholds"] if "range" in one]
    pictures: list[Picture] = []
    if rows:
        pictures.append(break_even(rows, decided=found.contest.has_pick, theme=theme()))
        place(pictures[0], "explore thresholds")
    absent = [one for one in made.document["thresholds"] if "range" not in one]
    if absent:
        with st.expander("Inputs that could not be moved", icon=":material/block:"):
            table([{"Input": one["lever"], "Why": one["none"]} for one in absent])
    if made.bars:
        st.subheader("Which uncertain numbers move it")
        swings = [_swing(one) for one in made.bars]
        pictures.append(tornado(swings, "Run time", "d", theme()))
        place(pictures[-1], "explore tornado")
        _flips(found.contest, made.bars)
    files = {".json": lambda: as_json({**found.document, **made.document})}
    command = f"{asked.command} --thresholds"
    hand_on(f"{scenario.name} thresholds", command, files, pictures, theme())


def runway(row: Mapping[str, Any]) -> InputRange:
    """A threshold of the document as a row of the picture."""
    low, high = row["range"]
    likely = row["source_range"]
    flips = [
        Flip(one["value"], one["side"], _wins(one["wins"]))
        for one in sorted(row["flips"], key=lambda one: one["value"])
    ]
    grows = low > 0 and high / low > 10
    return InputRange(
        row["lever"],
        row["unit"],
        low,
        high,
        row["now"],
        grows,
        tuple(flips),
        row["none"],
        None if likely is None else (likely[0], likely[1]),
    )


def _wins(wins: Mapping[str, Any] | None) -> str:
    return "" if wins is None else f"{wins['gpus']:,} GPUs, {wins['layout']}"


def _swing(one: Bar) -> Swing:
    known = one.found
    source = known.source.title if known.range_from == "source" and known.source else "10 %, ours"
    return Swing(known.path, known.low, known.high, one.days[0], one.days[1], source)


def _flips(contest: Decision, bars: tuple[Bar, ...]) -> None:
    """Which ends of the tornado cost the decision."""
    lost = [
        f"`{bar.found.path}` at {end}"
        for bar in bars
        for end, flips in zip((bar.found.low, bar.found.high), bar.flips, strict=True)
        if flips
    ]
    if lost:
        st.caption(f"The goal is lost, or the memory full, with {'; '.join(lost)}.")
    elif contest.has_pick:
        st.caption("At no end of these ranges is the goal lost or the memory full.")
