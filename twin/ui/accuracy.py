"""Accuracy: predictions of published clusters, their errors, and rows without a prediction."""

from __future__ import annotations

from typing import Any, Final, cast

import streamlit as st

from twin.evidence.validate import score, shipped_answers
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES
from twin.evidence.validate.score import percent
from twin.evidence.validate.shipped_answers import ShippedAnswers
from twin.evidence.validate.suite import WHY
from twin.evidence.validate.summary import COLUMNS, Summary, line, lines, reasons, sentence
from twin.figures.serving import coverage, group_errors, scatter
from twin.ui import PLAN, session
from twin.ui.background import Stopped
from twin.ui.place import grid, place, say_failure, say_stopped, table, theme, waiting
from twin.ui.published import (
    GROUPS,
    METRICS,
    MODELS,
    Metric,
    RowFilter,
    again,
    coverage_of,
    draft_of,
    error,
    group_errors_of,
    made_from,
    marks,
    words,
)
from twin.ui.session import widget_key
from twin.ui.workspace import Draft

_ROW: Final = "published row"
_SCATTER: Final = "predicted against measured"
_GROUPS: Final = 14
"""Groups whose bars are drawn: those with most rows."""
_PLANS: Final = ("train_step", "throughput_fact")
"""Categories of rows that are scenarios of a planner's kind."""


def accuracy_section() -> None:
    """Predictions of the published rows, scored."""
    answers = _answers()
    if answers is None:
        st.info("No answers ship with this twin; predict them here.", icon=":material/search_off:")
        _offer()
        return
    st.info(sentence(answers.summary), icon=":material/straighten:")
    _when(answers)
    _overview(answers.summary)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        choice, group, seen = _choose(answers.summary)
    summary = answers.summary.part(choice.has)
    _dots(summary, choice, group, seen=seen)
    _row(summary, choice)
    _medians(summary, choice, group)
    _intervals(summary)
    _rows(summary, METRICS[choice.metric])
    _pairs(summary)
    _refused(summary)


def _answers() -> ShippedAnswers | None:
    """What is shown: the answers that ship, or those that this session asked for, once they are
    there."""
    shipped, asked = shipped_answers.shipped(), session.validated()
    if asked is None:
        return shipped
    pending = again(asked)
    found = pending.within(0)
    if found is None:
        waiting("All published rows are being predicted again; this takes minutes.", pending)
        return shipped
    if isinstance(found, Stopped):
        say_stopped("These are the predictions that ship.", [found], "Validate again")
        return shipped
    if isinstance(found, ShippedAnswers):
        return found
    say_failure("The rows could not be predicted again.", found)
    return shipped


def _when(answers: ShippedAnswers) -> None:
    """How old the answers are, and the way to new ones."""
    told = f"Predicted on {answers.day} by twin {answers.twin}, from {answers.summary.rows:,} rows."
    if answers.made_from == made_from(session.known().stamp):
        st.caption(f"{told} Nothing that affects them has changed since.")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(
            f"{told} The twin's code, its catalog or the rows have changed since, so "
            "predictions may differ.",
            icon=":material/history:",
        )
        _offer()


def _offer() -> None:
    now = made_from(session.known().stamp)
    st.button(
        "Validate again",
        icon=":material/refresh:",
        on_click=session.validate_again,
        args=(now,),
        disabled=session.validated() == now,
        help="Predicts every row again with this twin, in the background; it takes minutes.",
    )


def _overview(summary: Summary) -> None:
    """All kinds of rows at a glance."""
    with st.expander("By GPU and kind of measurement", icon=":material/table:"):
        cells = ([cell.lstrip("-") for cell in one.cells()] for one in lines(summary))
        table([dict(zip(COLUMNS, own, strict=True)) for own in cells])
        st.caption(
            "Held-out rows only. 9 in 10: nine of ten errors are below this. Held: measurements "
            "inside their 80 % interval. All kernels and collectives are fitted; each is predicted "
            "here by a fit without it."
        )


def _choose(summary: Summary) -> tuple[RowFilter, str, bool]:
    """The chosen rows, what groups them, and whether fitted rows are shown."""
    metric = st.selectbox("Measurement", list(METRICS), key="accuracy metric", width=200)
    own = [one for one in summary.answers if METRICS[metric].has(one)]
    gpus = st.multiselect(
        "GPU", sorted({one.gpu for one in own if one.gpu}), placeholder="All", width=200
    )
    sources = st.multiselect(
        "Source", sorted({one.source for one in own}), placeholder="All", width=200
    )
    models = st.multiselect("Model", list(MODELS), placeholder="All", width=200)
    group = st.selectbox("Group by", list(GROUPS), key="accuracy group", width=130)
    judges = any(one.use == "check" for one in own)
    seen = st.toggle(
        "Show fitted rows",
        value=not judges,
        key=f"accuracy fitted {metric}",
        help="Hollow dots. They are not scored.",
    )
    return RowFilter(metric, tuple(gpus), tuple(sources), tuple(models)), group, seen


def _dots(summary: Summary, choice: RowFilter, group: str, *, seen: bool) -> None:
    st.header("Predicted and measured")
    found = marks(summary, choice, group, seen=seen)
    if not found:
        st.caption("No row of this choice has a prediction.")
        return
    picture = scatter(found, METRICS[choice.metric].unit, _finding(summary, choice), theme())
    place(picture, _SCATTER, _picked)


def _finding(summary: Summary, choice: RowFilter) -> str:
    """The errors of the chosen rows."""
    found = line(choice.metric, summary)
    if found is not None:
        one = found.overall.errors
        said = f"{one.rows:,} held-out rows: median error {percent(one.median)}, nine of ten below "
        return f"{said}{percent(found.within)}, the largest {percent(one.largest)}"
    left_out = score.errors(summary.left_out)
    if left_out is None:
        return "All of these rows are fitted, so they are not scored"
    return (
        f"All of these rows are fitted. By fits without them, {left_out.rows:,} rows have "
        f"a median error of {percent(left_out.median)}"
    )


def _picked() -> None:
    """Show the row whose dot was clicked."""
    state = cast("dict[str, Any]", st.session_state.get(_SCATTER) or {})
    dots: list[dict[str, Any]] = state.get("selection", {}).get("points", [])
    details = [dot.get("customdata") for dot in dots]
    for detail in details:
        if detail:
            st.session_state[_ROW] = detail[0]


def _row(summary: Summary, choice: RowFilter) -> None:
    """One row, with all that is known of it, and the way to its plan."""
    found = {one.id: one for one in worst(summary)}
    if not found:
        return
    names, shown = list(found), st.session_state.get(_ROW)
    shown = shown if shown in found else None
    key = widget_key(f"{_ROW} of {choice}", shown)
    st.selectbox(
        "Row: click a dot, or choose here",
        names,
        index=None if shown is None else names.index(shown),
        key=key,
        placeholder="Largest errors first",
        format_func=lambda one: f"{one}: {error(found[one])}",
        on_change=lambda: st.session_state.update({_ROW: st.session_state[key]}),
    )
    if shown is None:
        return
    one = found[shown]
    with st.container(border=True):
        st.markdown("  \n".join(words(one, METRICS[choice.metric])).replace("$", r"\$"))
        if one.use != "check":
            st.caption("This row, or a near copy, is fitted: it is not scored.")
        if one.category in _PLANS and st.button(
            "Open its scenario as a plan", icon=":material/arrow_forward:"
        ):
            _open(one)


def _open(one: RowResult) -> None:
    """Open the row's scenario as a plan."""
    draft = draft_of(one.id)
    if isinstance(draft, Draft):
        session.change(lambda on: on.opened(draft))
        st.switch_page(PLAN)
    say_failure("This row cannot be opened.", draft)


def _medians(summary: Summary, choice: RowFilter, group: str) -> None:
    groups = group_errors_of(summary, group)
    if not groups:
        return
    st.header(f"By {group if group.isupper() else group.lower()}")
    names = BASELINES if METRICS[choice.metric].metrics == ("step_seconds",) else ()
    words = {"GPU": "GPUs", "Source": "sources", "Model": "models", "Family": "families"}[group]
    shown = groups[:_GROUPS]
    place(group_errors(shown, names, words, theme()), key=f"medians by {group}")
    if len(groups) > len(shown):
        st.caption(f"Drawn are the {len(shown)} of {len(groups):,} {words} with most rows.")


def _intervals(summary: Summary) -> None:
    groups = coverage_of(summary)
    if groups:
        st.header("Coverage of the 80 % intervals")
        place(coverage(groups, theme()), key="coverage")


def worst(summary: Summary) -> list[RowResult]:
    """Rows with a prediction: held-out rows first, the largest error first."""
    known = [one for one in summary.answers if one.error is not None]
    return sorted(known, key=lambda one: (one.use != "check", -abs(one.error or 0.0)))


def _rows(summary: Summary, metric: Metric) -> None:
    """Every held-out row, the largest error first."""
    judging = [one for one in worst(summary) if one.use == "check"]
    if not judging:
        return
    st.header("Largest errors, and the assumptions behind them")
    grid(
        [
            {
                "Row": one.id,
                "Error": error(one),
                "Predicted": metric.show(one.predicted or 0.0),
                "Measured": metric.show(one.measured or 0.0),
                "Inside 80 % interval": {True: "yes", False: "no", None: ""}[one.covered],
                "Model": one.model,
                "GPU": one.gpu,
                "Stack": one.stack,
                "Assumed": "; ".join(one.assumed),
                "Source": one.source,
            }
            for one in judging
        ],
        "accuracy rows",
        "Every held-out row, the largest error first",
    )


def _pairs(summary: Summary) -> None:
    """Pairs that differ in one choice, wrong answers first."""
    own = [pair for pair in summary.pairs if pair.use == "check"]
    if not own:
        return
    st.header("Which of two plans is faster?")
    good = sum(pair.named for pair in own)
    st.markdown(
        f"**The twin names the faster plan in {good:,} of {len(own):,} pairs that differ in one "
        "choice.**"
    )
    st.caption("Pairs share source, model, GPUs, batch and sequence, and lie more than 3 % apart.")
    grid(
        [
            {
                "Right": "yes" if pair.named else "no",
                "RowFilter": pair.choice,
                "Faster has": pair.values[0],
                "Slower has": pair.values[1],
                "Faster by": percent(pair.measured),
                "Predicted": percent(pair.predicted),
                "Faster": pair.faster.id,
                "Slower": pair.slower.id,
            }
            for pair in sorted(own, key=lambda pair: (pair.named, -pair.measured))
        ],
        "accuracy pairs",
        "Pairs of plans, wrong answers first",
    )


def _refused(summary: Summary) -> None:
    """Rows without a prediction, by reason."""
    found = reasons(summary.refused)
    if not found:
        return
    st.header("Rows without a prediction")
    many = len({one.id for one in summary.refused})
    st.header(f"{many:,} of {summary.rows:,} rows are not predicted")
    grid(
        [
            {
                "Rows": len(one["rows"]),
                "Reason": one["reason"],
                "Is": WHY[one["why"]],
                "Examples": ", ".join(one["rows"][:3]),
            }
            for one in found
        ],
        "accuracy reasons",
        "Reasons why rows are not predicted",
    )
