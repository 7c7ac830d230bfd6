"""Serving: throughput of a plan's inference engines against concurrent users and context."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.figures.serving import steps, throughput, twice_the_heads
from twin.reports.numbers import digits, gibibytes
from twin.reports.serving import DATA, NONE, Serving, turns
from twin.ui import session
from twin.ui.answers import Refusal, engines
from twin.ui.open_plan import OpenPlan, say
from twin.ui.place import place, theme

_ENGINE: Final = "deepep-32gpu"
"""The shipped engine that a plan without one can try."""
_DECLARED: Final = f"data:\n  engine: {_ENGINE}"


def serving_section(shown: OpenPlan) -> None:
    """The engines of the open plan."""
    found = engines(shown.asked)
    if isinstance(found, tuple):
        _show(_chosen(found))
    elif isinstance(found, Refusal) and {one.code for one in found.problems} == {NONE.code}:
        _declare(shown.plan.title)
    else:
        say(shown.plan, found)


def _declare(title: str) -> None:
    """How a plan gets an engine."""
    st.info(f"**{title}** declares no inference engine.", icon=":material/dns:")
    st.markdown(
        "An engine is a part of the catalog, or your own, under `data.engine` (generates training "
        "data) or `rl.rollout.engine` (generates rollouts). This is enough to see it here:"
    )
    st.code(_DECLARED, language="yaml")
    st.button(
        f"Try {_ENGINE}",
        icon=":material/add:",
        help=f"Edits this plan: `{DATA}={_ENGINE}`.",
        on_click=lambda: session.change(
            lambda on: on.changed(lambda one: one.edited(DATA, _ENGINE))
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
            "The engine has no memory for a sequence of any of these contexts beside its weights: "
            "give it more GPUs, FP8 weights, an FP8 cache, or a smaller `chunk`.",
            icon=":material/block:",
        )
        return
    place(throughput(found, theme()), key="throughput")
    said = turns(found)
    if said is not None:
        st.info(said, icon=":material/lightbulb:")
    st.subheader("Parts of a step")
    place(steps(found, theme()), key="steps")
    st.subheader(f"{found.heads} or {2 * found.heads} heads?")
    place(twice_the_heads(found, theme()), key="heads")
    st.subheader("Assumptions and limits")
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
    """The uncertainty of the figures, and what is not modelled."""
    ranged = [
        f"at {context:,} tokens by -{digits(100 * (1 - one.low))} % to "
        f"+{digits(100 * (one.high - 1))} %"
        for context, one in found.reach.items()
    ]
    named = dict.fromkeys(name for one in found.reach.values() for name in one.drivers)
    low, high = found.kept
    kept = digits(100 * found.engine.utilisation)
    st.markdown(
        f"- The ranges of the inputs move tokens per second {', '.join(ranged)}, at the largest "
        f"batch of each. The largest effects: {', '.join(f'`{name}`' for name in named)}. These "
        "are ranges of inputs, not intervals with a stated coverage.\n"
        "- Between steps only `step_overhead` passes. Published services are slower than this "
        "model: see How-to: data in the documentation. Over hours the engine keeps "
        f"{kept} % ({digits(100 * low)} % to {digits(100 * high)} %) of these rates.\n"
        "- Users have equal contexts. Fewer users than one per group are not shown, because groups "
        "step together.\n"
        "- Not modelled: sampling, multi-token prediction, and caches that move between engines."
    )
