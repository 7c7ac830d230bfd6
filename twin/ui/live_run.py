"""Live run: a run while it runs, beside the prediction that was sealed before it; and the coverage
of sealed intervals."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.answers import runs_folder
from twin.errors import TwinError
from twin.evidence.live.figures import step_times
from twin.evidence.live.follower import Track
from twin.evidence.live.seals import BESIDE, SealFolder, counting, read_seals, seals_folder
from twin.evidence.live.trainer_log import NAME
from twin.evidence.live.wording import change, checked, left, rate
from twin.reports.numbers import digits, duration, signed
from twin.ui import session
from twin.ui.open_plan import code
from twin.ui.place import place, table, theme

_EVERY: Final = 2.0
"""Seconds between two looks at a run."""
_BESIDE: Final = "the one beside the run"
_STATES: Final = {
    "waiting": (":material/hourglass_top:", "orange"),
    "running": (":material/play_arrow:", "green"),
    "silent": (":material/pause:", "orange"),
    "done": (":material/check:", "blue"),
}


def live_section() -> None:
    """A run while it runs, beside its sealed prediction."""
    kept = read_seals()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        folder, against = _choose(kept)
    if folder is None:
        st.info(
            f"There is no run to follow. The trainer writes one into `{runs_folder() / 'train'}`; "
            f"any other folder with a `{NAME}` in it can be typed above.",
            icon=":material/search_off:",
        )
    else:
        _follow(folder, against)
    st.subheader("Coverage of sealed intervals")
    _hits(kept)


def _choose(kept: SealFolder) -> tuple[str | None, str | None]:
    """Which run is followed, and against which seal."""
    known = _runs()
    named = st.selectbox(
        "Run", list(known), key="tracked run", placeholder="none was found", disabled=not known
    )
    typed = st.text_input(
        "Or any run's folder", key="tracked folder", placeholder="runs/train/nano"
    ).strip()
    seals = {f"{one.digest[:8]} {one.name}": one.digest for one in reversed(kept.seals)}
    seal = st.selectbox("Sealed prediction", [_BESIDE, *seals], key="tracked seal")
    st.caption(f"`twin run SCENARIO --seal` adds one; `{BESIDE}` is looked for beside the log.")
    return typed or known.get(named or ""), seals.get(seal)


def _runs() -> dict[str, str]:
    """The runs of the trainer's usual folder, the newest first."""
    logs = sorted(
        (runs_folder() / "train").glob(f"*/{NAME}"), key=lambda one: -one.stat().st_mtime_ns
    )
    return {one.parent.name: str(one.parent) for one in logs}


@st.fragment(run_every=_EVERY)
def _follow(folder: str, against: str | None) -> None:
    """The run as it stands now, drawn again while it goes on."""
    try:
        follower = session.followed(folder, against)
        found = follower.look()
    except TwinError as error:
        st.error("This run cannot be followed.", icon=":material/error:")
        code(str(error))
        return
    _figures(found)
    if follower.log.steps:
        place(step_times(follower.log.steps, found, theme()), key="step times")
    _drift(found)
    _beside(found)
    for note in found.notes:
        st.caption(f":material/info: {note}")


def _figures(found: Track) -> None:
    icon, colour = _STATES[found.state]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(found.state.capitalize(), icon=icon, color=colour)  # pyright: ignore[reportArgumentType]
        st.caption(f"`{found.run}`" + (f", stage {found.stage}" if found.stage else ""))
    if found.steps is not None:
        done = f"Step {found.step:,} of {found.steps:,}"
        st.progress(min(1.0, found.step / found.steps), done)
    with st.container(horizontal=True, gap="medium"):
        if found.steps is None:
            st.metric("Step", f"{found.step:,}", width=160)
        if found.pace is not None:
            st.metric("Seconds per step", duration(found.pace.seconds), width=140)
        if found.remaining is not None and found.state != "done":
            st.metric("Remaining", duration(found.remaining.seconds), width=120)
            st.metric("80 % interval of that", _interval(left(found.remaining)), width=240)
        one = found.prediction
        if one is not None and one.ratio is not None and found.pace is not None:
            now = found.pace.seconds / one.predicted
            st.metric("Against the prediction, now", _off(now), width=210)
            st.metric("And over the whole run", _off(one.ratio), width=190)


def _interval(text: str) -> str:
    """What stands in brackets."""
    return text.partition("(")[2].rstrip(")") or "too few steps"


def _off(ratio: float) -> str:
    return f"{signed(100 * (ratio - 1))} %"


def _drift(found: Track) -> None:
    """The newest change, and its cause."""
    if found.cause is not None:
        icon = ":material/troubleshoot:"
        rest = "  \n".join(one.words for one in found.cause.evidence[1:4])
        st.warning(f"**{found.cause.words}**  \n{rest}", icon=icon)
    if found.changes:
        newest = change(found.changes[-1])
        st.caption(f"The newest of {len(found.changes):,} changes of the step time: {newest}")
    elif found.pace is not None:
        st.caption(
            "The step time has not changed. The test has one false alarm in about 100,000 steps."
        )


def _beside(found: Track) -> None:
    one = found.prediction
    if one is None:
        st.caption("This run has no sealed prediction: choose one above.")
        return
    told = f"Sealed {one.sealed[:10]} as `{one.seal[:8]}`: {duration(one.predicted)} per step"
    if one.inside is not None:
        place_of = "inside" if one.inside else "outside"
        steps = one.measured.steps if one.measured else 0
        told += f"; the median of {steps:,} steps is {place_of} its 80 % interval"
    if one.left is not None:
        told += f"; it left the interval at step {one.left:,}"
    st.markdown(f"{told}.")


def _hits(kept: SealFolder) -> None:
    """The hit rate, and every seal with the check that counts."""
    found = kept.hit_rate
    if found.share is not None:
        with st.container(horizontal=True, gap="medium"):
            st.metric("Inside their 80 % interval", f"{digits(100 * found.share)} %", width=200)
            st.metric("Of predictions", f"{found.counted:,}", width=200)
    st.markdown(rate(found))
    if kept.refused:
        st.error(
            "Predictions that were changed after sealing are not counted.",
            icon=":material/gpp_bad:",
        )
        code("\n\n".join(f"{one.code} {one.message}" for one in kept.refused))
    rows: list[dict[str, str]] = []
    for one in reversed(kept.seals):
        chosen = counting(kept.of(one))
        span = one.interval
        rows.append(
            {
                "Seal": one.digest[:8],
                "Sealed": one.sealed[:10],
                "Scenario": one.name,
                "Step": duration(one.seconds),
                "80 % interval": f"{duration(span[0])} to {duration(span[1])}" if span else "none",
                "Latest check": "none" if chosen is None else checked(chosen),
            }
        )
    if rows:
        table(rows)
    else:
        st.caption(f"No prediction is sealed in `{seals_folder()}`.")
