"""Tables of the page Reality: rows, the worst first; pairs of plans; what is not predicted."""

from __future__ import annotations

import streamlit as st

from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.score import percent
from twin.evidence.validate.summary import Summary, reasons
from twin.ui.chosen import Kind, error
from twin.ui.pictures import grid


def worst(summary: Summary) -> list[RowResult]:
    """Rows that are predicted, those that judge first, the worst of them first."""
    known = [one for one in summary.answers if one.error is not None]
    return sorted(known, key=lambda one: (one.use != "check", -abs(one.error or 0.0)))


def rows(summary: Summary, kind: Kind) -> None:
    """Every row that judges, the worst first."""
    judging = [one for one in worst(summary) if one.use == "check"]
    if not judging:
        return
    st.subheader("The worst rows, and what was assumed of them")
    grid(
        [
            {
                "Row": one.id,
                "Error": error(one),
                "Predicted": kind.show(one.predicted or 0.0),
                "Measured": kind.show(one.measured or 0.0),
                "In 80 %": {True: "yes", False: "no", None: ""}[one.covered],
                "Model": one.model,
                "GPU": one.gpu,
                "Stack": one.stack,
                "Assumed": "; ".join(one.assumed),
                "Source": one.source,
            }
            for one in judging
        ],
        "reality rows",
        "Every row that judges, the worst first",
    )


def pairs(summary: Summary) -> None:
    """Pairs that one choice tells apart, those that are named wrongly first."""
    own = [pair for pair in summary.pairs if pair.use == "check"]
    if not own:
        return
    st.subheader("Which of two plans is faster?")
    good = sum(pair.named for pair in own)
    st.markdown(
        f"**In {good:,} of {len(own):,} pairs of rows that differ in one choice, the faster one is "
        "named.**"
    )
    st.caption("Pairs share source, model, GPUs, batch and sequence, and lie more than 3 % apart.")
    grid(
        [
            {
                "Right": "yes" if pair.named else "no",
                "Choice": pair.choice,
                "Faster has": pair.values[0],
                "Slower has": pair.values[1],
                "Faster by": percent(pair.measured),
                "Predicted": percent(pair.predicted),
                "Faster": pair.faster.id,
                "Slower": pair.slower.id,
            }
            for pair in sorted(own, key=lambda pair: (pair.named, -pair.measured))
        ],
        "reality pairs",
        "Pairs of plans, those that are named wrongly first",
    )


def refused(summary: Summary) -> None:
    """Rows without a prediction, by reason."""
    found = reasons(summary.refused)
    if not found:
        return
    st.subheader("What is not predicted, and why")
    many = len({one.id for one in summary.refused})
    st.markdown(f"**{many:,} of {summary.rows:,} rows are not predicted**")
    grid(
        [
            {
                "Rows": len(one["rows"]),
                "Reason": one["reason"],
                "Such as": ", ".join(one["rows"][:3]),
            }
            for one in found
        ],
        "reality reasons",
        "Reasons why rows are not predicted",
    )
