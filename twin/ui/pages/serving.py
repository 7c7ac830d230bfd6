"""Serving: tokens per second of a plan's inference engines against concurrent users and context."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.figures.serving import steps, throughput, twice_the_heads
from twin.reports.numbers import digits, gibibytes
from twin.reports.serving import DATA, Serving
from twin.reports.serving_words import turns
from twin.ui import session
from twin.ui.pictures import place, theme
from twin.ui.serving import declares_none, engines
from twin.ui.view import ask_about, say

_ENGINE: Final = "deepep-32gpu"
"""The shipped engine that a plan without one can try."""
_DECLARED: Final = f"data:\n  engine: {_ENGINE}"


def page() -> None:
    """Run the page once, top to bottom."""
    plan = session.desk().open
    st.subheader("How fast do engines answer, and how many users at a time?")
    found = engines(ask_about(plan))
    if isinstance(found, tuple):
        _show(_chosen(found))
    elif declares_none(found):
        _declare(plan.title)
    else:
        say(plan, found)


def _declare(title: str) -> None:
    """How a plan gets an engine."""
    st.info(f"**{title}** declares no inference engine.", icon=":material/dns:")
    st.markdown(
        "An engine is a part of the catalog, or your own, under `data.engine` (which generates "
        "training data) or under `rl.rollout.engine` (which writes what reinforcement learning "
        "learns from). This is enough to see it here:"
    )
    st.code(_DECLARED, language="yaml")
    st.button(
        f"Try {_ENGINE}",
        icon=":material/add:",
        help=f"Edits this plan: `{DATA}={_ENGINE}`.",
        on_click=lambda: session.change(
            lambda desk: desk.changed(lambda one: one.edited(DATA, _ENGINE))
        ),
    )


def _chosen(found: tuple[Serving, ...]) -> Serving:
    """The engine that is shown, of a plan that declares several."""
    if len(found) == 1:
        return found[0]
    paths = [one.path for one in found]
    path = st.segmented_control(
        "Engine", paths, default=paths[0], required=True, key="engine shown"
    )
    return found[paths.index(path)] if path in paths else found[0]


def _show(found: Serving) -> None:
    _facts(found)
    if not any(at.points for at in found.curve.contexts):
        st.error(
            "Beside its weights the engine has no room for one sequence at any of these contexts: "
            "give it more GPUs, FP8 weights, an FP8 cache, or a smaller `chunk`.",
            icon=":material/block:",
        )
        return
    place(throughput(found, theme()), key="throughput")
    said = turns(found)
    if said is not None:
        st.info(said, icon=":material/lightbulb:")
    st.subheader("What a step is made of")
    place(steps(found, theme()), key="steps")
    st.subheader(f"{found.heads} or {2 * found.heads} heads?")
    place(twice_the_heads(found, theme()), key="heads")
    st.subheader("Before you trust these numbers")
    _doubts(found)


def _facts(found: Serving) -> None:
    own, room = found.curve, found.curve.room
    st.caption(
        f"`{found.path}`: {found.model.name} on {own.gpus:,} GPUs in {own.groups:,} groups, "
        f"{found.engine.precision} weights, {found.engine.cache} cache. Of every GPU "
        f"{gibibytes(room.weights)} are weights and {gibibytes(max(0.0, room.cache))} are left for "
        f"the cache, {room.tokens:,} tokens of a group."
    )


def _doubts(found: Serving) -> None:
    """How far the figures may lie off, and what they leave out."""
    ranged = [
        f"at {context:,} tokens by -{digits(100 * (1 - one.low))} % to "
        f"+{digits(100 * (one.high - 1))} %"
        for context, one in found.reach.items()
    ]
    named = dict.fromkeys(name for one in found.reach.values() for name in one.drivers)
    low, high = found.kept
    kept = digits(100 * found.engine.utilisation)
    st.markdown(
        f"- The ranges of the numbers behind a step move tokens per second {', '.join(ranged)}, at "
        f"the largest batch of each; most of it do {', '.join(f'`{name}`' for name in named)}. "
        "They are ranges of inputs, and hold no stated share of cases.\n"
        "- A step is one of a profile: nothing but `step_overhead` passes between steps. Published "
        "services are slower than this model, see the page How-to: data of the documentation. Over "
        f"hours the engine keeps {kept} % ({digits(100 * low)} % to {digits(100 * high)} %) of "
        "these rates.\n"
        "- Users have equal contexts, and fewer users than one in every group are not shown: "
        "groups step together.\n"
        "- Left out: sampling, prediction of several tokens at once, and caches that move from one "
        "engine to another."
    )


page()
