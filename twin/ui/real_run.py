"""Real run: a measured step beside the open plan's prediction: causes, actions and timelines.

Live run: a run while it runs, beside the prediction that was sealed before it; and the coverage
of sealed intervals.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import streamlit as st

from twin.answers import Run, runs_folder
from twin.engine.trace import Trace
from twin.errors import TwinError
from twin.evidence.live.figures import step_times
from twin.evidence.live.follower import Track
from twin.evidence.live.seals import BESIDE, SealFolder, counting, read_seals, seals_folder
from twin.evidence.live.trainer_log import NAME
from twin.evidence.live.wording import change, checked, left, rate
from twin.evidence.measured.compare import StepComparison, compare_steps, joined_trace, sentence
from twin.evidence.measured.figures import (
    action_rows,
    actions,
    both_steps,
    both_timelines,
    chunk_rows,
)
from twin.evidence.measured.run_folder import MeasuredRun, is_run, read, runs_in, stamp
from twin.evidence.measured.step import trace
from twin.evidence.measured.summary import RunSummary, summary
from twin.figures.charts import Control, View
from twin.figures.timeline import LANES, played_ns, start_window
from twin.loading.files import shipped_folder
from twin.loading.files import table as data_table
from twin.reports.table import digits, duration, show, signed
from twin.ui import session
from twin.ui.answers import Failure, Question, guarded, simulated
from twin.ui.place import (
    answered,
    code,
    open_plan,
    place,
    say_failure,
    show_views,
    small,
    step_view,
    table,
    theme,
)
from twin.ui.scenarios import command_line
from twin.ui.session import widget_key

_KEPT: Final = 8
"""Runs kept in memory."""
_RANKS: Final = 2
"""Ranks of a stage that the timeline shows."""


def real_section() -> None:
    """A real run beside the prediction of the open plan."""
    known = runs()
    if not known:
        _example()
        return
    asked = session.measured()
    name = asked if asked is not None and asked in known else next(iter(known))
    step = _choose(name, list(known))
    found = happened(known[name], step)
    if not isinstance(found, Happened):
        say_failure(f"**{name}** cannot be shown.", found)
        return
    answer = answered(step_view(open_plan()))
    if answer is not None:
        _beside_prediction(found, known[name], answer)


def _beside_prediction(found: Happened, folder: Path, answer: Run) -> None:
    compared = compare_steps(found.run, found.summary, found.trace, answer.plan, answer.trace)
    _show(found, compared, answer)
    _origin(found, folder, answer)


_FOLDER: Final = shipped_folder() / "measured" / "epyc-zen4-1core-torch2.13"
_SCENARIO: Final = _FOLDER / "two-stages.yaml"
_RUN: Final = _FOLDER / "runs" / "two-stages"
"""The example: a run that was recorded on a CPU, and the scenario that predicts it."""
_EXAMPLE_WORDS: Final = (
    "An example: the reference trained `kimi-k2-nano` in two stages on two cores of an AMD EPYC, "
    "on 28 November 2026. The prediction was sealed before. Other programs used the same cores "
    "meanwhile, so kernels took longer than predicted."
)
_OWN_RUN: Final = (
    "torchrun --nproc-per-node 2 -m reference.train nano --set parallel.pipeline=2 "
    "--set train.timeline=true\n"
    "twin ui SCENARIO --measured runs/train/nano"
)
"""Writes a run with timelines, and opens it."""


def _example() -> None:
    """A recorded run beside its prediction, and how to show another."""
    small(f"{_EXAMPLE_WORDS} No run of yours was found in `{runs_folder() / 'train'}`.")
    with st.expander("Show your own run", icon=":material/add:"):
        st.markdown(
            "1. Train on several ranks with timelines. Any trainer can write them; the guide "
            "*Where did the time of my real run go* has the format.\n"
            "2. Open the app beside the run, with the scenario that predicts it:"
        )
        st.code(_OWN_RUN, language="shell", wrap_lines=True)
    found, answer = happened(_RUN, None), _predicted()
    if isinstance(found, Happened) and isinstance(answer, Run):
        _beside_prediction(found, _RUN, answer)


@cache
def _predicted() -> Run | Failure:
    """The prediction of the example, which takes a moment."""
    return simulated(Question(str(_SCENARIO), None, (), 0), lambda _: None)


def _choose(name: str, names: list[str]) -> int | None:
    """Which run is shown, and which step of it."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        key = widget_key("measured run shown", name, names)
        st.selectbox(
            "Run",
            names,
            names.index(name),
            key=key,
            on_change=lambda: session.show_measured(st.session_state[key]),
            width=320,
        )
        return st.number_input(
            "Step",
            min_value=0,
            value=None,
            placeholder="the median one",
            key=f"measured step {name}",
            width=200,
        )


def _show(found: Happened, compared: StepComparison, answer: Run) -> None:
    if compared.mismatches:
        st.warning(
            "**The open plan is not the plan of this run**, so the difference says little: "
            f"{'; '.join(compared.mismatches)}.",
            icon=":material/balance:",
        )
    st.markdown(sentence(found.summary, found.trace, compared))
    _figures(compared)
    st.header("Where the step time goes")
    place(both_steps(compared, theme()), key="both steps")
    _timelines(found, compared, answer)
    st.header("Action by action")
    place(actions(compared, theme()), key="action errors")
    table(action_rows(compared.actions))
    rows = chunk_rows(compared.actions)
    if rows:
        with st.expander("Chunk by chunk", icon=":material/list:"):
            table(rows)


def _figures(compared: StepComparison) -> None:
    mine, other = compared.measured_row, compared.predicted_row
    took, said = compared.measured_ns, compared.predicted_ns
    off = f"{signed(100 * compared.step_error)} % of measured"
    with st.container(horizontal=True, gap="medium"):
        st.metric("Measured step", show(took / 1e9, "s"), width=180)
        st.metric("Predicted step", show(said / 1e9, "s"), off, "off", width=180)
        for label, cause in (("Bubble", "bubble"), ("Compute", "compute")):
            share = show(mine[cause] / took, "%")
            st.metric(
                f"{label}, measured", share, f"predicted {show(other[cause] / said, '%')}", "off"
            )


def _timelines(found: Happened, compared: StepComparison, answer: Run) -> None:
    """Both steps on one axis."""
    both = joined_trace(found.run.layout, found.trace, answer.trace, _RANKS)
    window = Control(
        "window",
        "Window to look at, in seconds",
        "window",
        start_window(both),
        end_ns=played_ns(both),
    )
    lanes = Control("lanes", "Lanes", "choice", "compute", LANES)
    view = View(
        "",
        "Pipeline, measured and predicted",
        "both timelines",
        lambda theme, chosen: both_timelines(both, compared, theme, **chosen),
        (window, lanes),
    )
    show_views([view], found.run.name)
    ranks = found.run.layout.mesh.stage_ranks
    if ranks > _RANKS:
        st.caption(f"{_RANKS} of the {ranks} ranks of each stage are shown.")


def _origin(found: Happened, folder: Path, answer: Run) -> None:
    st.header("Provenance")
    header, steps = found.run.header, found.summary
    st.caption(
        f"{header.model} on {header.ranks} ranks, written {header.created or 'at unknown time'}; "
        f"step {steps.step}, {found.trace.events:,} spans; {len(steps.counted)} steps counted, "
        f"{len(steps.warm_up)} before them taken for warm-up"
    )
    scenario = shlex.split(answer.report.provenance.reproduce or "")[2:]
    command = shlex.join(["twin", "measured", str(folder), *scenario])
    st.code(command, language=None, wrap_lines=True)


@dataclass(frozen=True, slots=True)
class Happened:
    """A real run, the step of it that is shown, and that step as a trace."""

    run: MeasuredRun
    summary: RunSummary
    trace: Trace


def runs() -> Mapping[str, Path]:
    """The real runs of this app by name: those that it was opened with, then the newest first."""
    asked = [Path(one) for one in command_line() if is_run(one)]
    known: dict[str, Path] = {}
    for one in (*asked, *runs_in(runs_folder() / "train")):
        name = one.absolute().name
        known.setdefault(name if known.get(name, one) == one else str(one), one)
    return known


def happened(folder: Path, step: int | None) -> Happened | Failure:
    """A step of a run, as its files stand now; None: the median one."""
    return guarded(lambda: _happened(folder, step, stamp(folder)))


@lru_cache(_KEPT)
def _read(folder: Path, as_of: int) -> MeasuredRun:
    del as_of
    return read(folder)


@lru_cache(_KEPT)
def _happened(folder: Path, step: int | None, as_of: int) -> Happened:
    run = _read(folder, as_of)
    found = summary(run, step)
    return Happened(run, found, trace(run, found.step))


_EVERY: Final = 2.0
"""Seconds between two looks at a run."""
_BESIDE: Final = "the one beside the run"
_STATES: Final = data_table(__name__, "_STATES")


def live_section() -> None:
    """A run while it runs, beside its sealed prediction."""
    kept = read_seals()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        folder, against = _live_run_choose(kept)
    if folder is None:
        small(
            f"{_EXAMPLE_WORDS} To follow yours, type the folder of any run that writes `{NAME}` "
            "above. Pace, remaining time and drift are shown while it runs."
        )
    _follow(folder or str(_RUN), against)
    st.header("Coverage of sealed intervals")
    _hits(kept)


def _live_run_choose(kept: SealFolder) -> tuple[str | None, str | None]:
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
    _live_run_figures(found)
    if follower.log.steps:
        place(step_times(follower.log.steps, found, theme()), key="step times")
    _drift(found)
    _beside(found)
    for note in found.notes:
        st.caption(f":material/info: {note}")


def _live_run_figures(found: Track) -> None:
    icon, colour = _STATES[found.state]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(found.state.capitalize(), icon=icon, color=colour)
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
