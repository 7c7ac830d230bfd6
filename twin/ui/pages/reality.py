"""Reality: published clusters beside the twin's predictions of them: how far it is off, where, and
what it cannot predict."""

from __future__ import annotations

from typing import Any, Final, cast

import streamlit as st

from twin.evidence.validate import score, shipped_answers
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES
from twin.evidence.validate.score import percent
from twin.evidence.validate.shipped_answers import ShippedAnswers
from twin.evidence.validate.summary import COLUMNS, Summary, line, lines, sentence
from twin.figures.validation import coverage, group_errors, scatter
from twin.ui import chosen, session
from twin.ui.answers import Refusal
from twin.ui.chosen import GROUPS, KINDS, MODELS, Choice
from twin.ui.desk import Draft
from twin.ui.evidence import pairs, refused, rows, worst
from twin.ui.pictures import place, table, theme
from twin.ui.places import PLAN
from twin.ui.published import again, draft_of, made_from
from twin.ui.session import widget_key
from twin.ui.view import code, say_bug, waiting

_ROW: Final = "published row"
_SCATTER: Final = "predicted against measured"
_GROUPS: Final = 14
"""Groups whose bars are drawn: those with most rows."""
_PLANS: Final = ("train_step", "throughput_fact")
"""Categories of rows that are scenarios of a planner's kind."""


def page() -> None:
    """Run the page once, top to bottom."""
    st.subheader("How right is the twin?")
    answers = _answers()
    if answers is None:
        st.info("No answers ship with this twin; predict them here.", icon=":material/search_off:")
        _offer()
        return
    st.info(sentence(answers.summary), icon=":material/straighten:")
    _when(answers)
    _overview(answers.summary)
    with st.sidebar:
        choice, group, seen = _choose(answers.summary)
    summary = answers.summary.part(choice.has)
    _dots(summary, choice, group, seen=seen)
    _row(summary, choice)
    _medians(summary, choice, group)
    _intervals(summary)
    rows(summary, KINDS[choice.kind])
    pairs(summary)
    refused(summary)


def _answers() -> ShippedAnswers | None:
    """What is shown: the answers that ship, or those that this session asked for, once they are
    there."""
    shipped, asked = shipped_answers.shipped(), session.validated()
    if asked is None:
        return shipped
    pending = again(asked)
    found = pending.within(0)
    if found is None:
        waiting(pending, "All published rows are being predicted again; this takes minutes.")
        return shipped
    if isinstance(found, ShippedAnswers):
        return found
    st.error("The rows could not be predicted again.", icon=":material/error:")
    if isinstance(found, Refusal):
        code(found.text)
    else:
        say_bug(found.text)
    return shipped


def _when(answers: ShippedAnswers) -> None:
    """How old the answers are, and the way to new ones."""
    told = f"Predicted on {answers.day} by twin {answers.twin}, from {answers.summary.rows:,} rows."
    if answers.made_from == made_from(session.the_known().stamp):
        st.caption(f"{told} Nothing that they follow from has changed since.")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(
            f"{told} The twin's code, its catalog or the rows have changed since, so this twin may "
            "say something else.",
            icon=":material/history:",
        )
        _offer()


def _offer() -> None:
    now = made_from(session.the_known().stamp)
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
            "Of rows that no number was fitted to. 9 in 10: what nine of ten errors stay below; "
            "held: 80 % intervals that hold. All kernels and collectives were fitted to; each is "
            "predicted here by a fit without it."
        )


def _choose(summary: Summary) -> tuple[Choice, str, bool]:
    """What is looked at, what shares a look, and whether rows that a fit has seen are shown."""
    kind = st.selectbox("What was measured", list(KINDS), key="reality kind")
    own = [one for one in summary.answers if KINDS[kind].has(one)]
    gpus = st.multiselect("GPU", sorted({one.gpu for one in own if one.gpu}), placeholder="All")
    sources = st.multiselect("Source", sorted({one.source for one in own}), placeholder="All")
    models = st.multiselect("Model", list(MODELS), placeholder="All")
    group = st.selectbox("Group by", list(GROUPS), key="reality group")
    judges = any(one.use == "check" for one in own)
    seen = st.toggle(
        "Show rows that a fit has seen",
        value=not judges,
        key=f"reality seen {kind}",
        help="Hollow dots. They are in no number of this page.",
    )
    return Choice(kind, tuple(gpus), tuple(sources), tuple(models)), group, seen


def _dots(summary: Summary, choice: Choice, group: str, *, seen: bool) -> None:
    st.subheader("Predicted and measured")
    found = chosen.points(summary, choice, group, seen=seen)
    if not found:
        st.caption("No row of this choice is predicted.")
        return
    picture = scatter(found, KINDS[choice.kind].unit, _finding(summary, choice), theme())
    place(picture, _SCATTER, _picked)


def _finding(summary: Summary, choice: Choice) -> str:
    """How far the rows that are looked at are missed."""
    found = line(choice.kind, summary)
    if found is not None:
        one = found.overall.errors
        told = f"{one.rows:,} rows that no fit has seen: half are missed by less than "
        told += f"{percent(one.median)}, nine of ten by less than {percent(found.within)}"
        return f"{told}, the worst by {percent(one.largest)}"
    left_out = score.errors(summary.left_out)
    if left_out is None:
        return "A fit has seen all of these rows, so they judge nothing"
    return (
        f"A fit has seen all of these rows. Predicted by fits without them, half of "
        f"{left_out.rows:,} are missed by less than {percent(left_out.median)}"
    )


def _picked() -> None:
    """Show the row whose dot was clicked."""
    state = cast("dict[str, Any]", st.session_state.get(_SCATTER) or {})
    dots: list[dict[str, Any]] = state.get("selection", {}).get("points", [])
    details = [dot.get("customdata") for dot in dots]
    for detail in details:
        if detail:
            st.session_state[_ROW] = detail[0]


def _row(summary: Summary, choice: Choice) -> None:
    """One row, with all that is known of it, and the way to its plan."""
    found = {one.id: one for one in worst(summary)}
    if not found:
        return
    names, shown = list(found), st.session_state.get(_ROW)
    shown = shown if shown in found else None
    key = widget_key(f"{_ROW} of {choice}", shown)
    st.selectbox(
        "One row: click a dot, or choose here",
        names,
        index=None if shown is None else names.index(shown),
        key=key,
        placeholder="The worst come first",
        format_func=lambda one: f"{one}: {chosen.error(found[one])}",
        on_change=lambda: st.session_state.update({_ROW: st.session_state[key]}),
    )
    if shown is None:
        return
    one = found[shown]
    with st.container(border=True):
        st.markdown("  \n".join(chosen.words(one, KINDS[choice.kind])).replace("$", r"\$"))
        if one.use != "check":
            st.caption(
                "A fit has seen this row, or one that is nearly the same: it judges nothing."
            )
        if one.category in _PLANS and st.button(
            "Open its scenario as a plan", icon=":material/arrow_forward:"
        ):
            _open(one)


def _open(one: RowResult) -> None:
    """Put the row's scenario on the desk, and go there."""
    draft = draft_of(one.id)
    if isinstance(draft, Draft):
        session.change(lambda on: on.opened(draft))
        st.switch_page(PLAN)
    st.error("This row cannot be opened.", icon=":material/error:")
    code(draft.text)


def _medians(summary: Summary, choice: Choice, group: str) -> None:
    groups = chosen.missed(summary, group)
    if not groups:
        return
    st.subheader(f"By {group if group.isupper() else group.lower()}")
    names = BASELINES if KINDS[choice.kind].metrics == ("step_seconds",) else ()
    words = {"GPU": "GPUs", "Source": "sources", "Model": "models", "Family": "families"}[group]
    shown = groups[:_GROUPS]
    place(group_errors(shown, names, words, theme()), key=f"medians by {group}")
    if len(groups) > len(shown):
        st.caption(f"Drawn are the {len(shown)} of {len(groups):,} {words} with most rows.")


def _intervals(summary: Summary) -> None:
    groups = chosen.held(summary)
    if groups:
        st.subheader("Do intervals hold?")
        place(coverage(groups, theme()), key="intervals that hold")


page()
