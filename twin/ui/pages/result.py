"""Result: the verdict first, then why: what would fit, where the step goes, and the pipeline as it
ran."""

from __future__ import annotations

import streamlit as st

from twin.figures.step import step_losses
from twin.reports.waterfall import waterfall
from twin.ui.closer import pipeline
from twin.ui.derivation import derivation
from twin.ui.generated import generated
from twin.ui.parts import figures, provenance, sentence, warnings
from twin.ui.pictures import place, theme
from twin.ui.suggestions import suggestions
from twin.ui.view import run_or_stop, view

_FIGURES = (
    "step_seconds",
    "days",
    "cost_usd",
    "mfu",
    "tokens_per_second",
    "bubble_fraction",
    "exposed_communication_seconds",
    "peak_device_bytes",
)


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    run = run_or_stop(shown)
    sentence(run.report)
    figures(shown, [_FIGURES], width=180)
    if not run.report.fits:
        suggestions(shown)
    st.subheader("Where the step goes")
    losses = waterfall(run.plan, run.report)
    place(step_losses(losses, shown.plan.title, theme()), key="waterfall")
    derivation(shown, run)
    pipeline(run)
    generated(run.report)
    st.subheader("Before you trust these numbers")
    warnings(run.report.warnings)
    st.subheader("Provenance")
    provenance(run)


page()
