"""Data that is generated before a run trains: its days, what bounds them, and what they hang on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from twin.reports.numbers import count, digits, show
from twin.reports.report import Report
from twin.reports.with_data import data_words
from twin.ui.pictures import table

if TYPE_CHECKING:  # few runs say what their data takes
    from twin.data import JobRun


def generated(report: Report) -> None:
    """The section of a run whose data is generated; nothing of others."""
    found = report.generated
    if found is None:
        return
    st.subheader("Data that is generated before")
    st.markdown(data_words(found))
    jobs = found.generation.jobs
    rows = [_row(job, cost) for job, cost in zip(jobs, found.costs, strict=True)]
    table(rows)
    moving = [
        {"Job": job.job.name, "Field": path, "Days, low end": low, "Days, high end": high}
        for job in jobs
        for path, low, high in _moved(job)
    ]
    if moving:
        st.markdown("**The numbers that move it most**")
        table(moving)


def _row(job: JobRun, cost: float | None) -> dict[str, str]:
    span = job.interval
    return {
        "Job": job.job.name,
        "Tokens kept": count(job.job.kept_tokens),
        "Refused": f"{100 * job.job.rejected:.0f} %",
        "Days": digits(job.days),
        "By their ranges": "" if span is None else f"{digits(span[0])} to {digits(span[1])}",
        "GPU-hours": count(job.gpu_hours),
        "Cost": "" if cost is None else show(cost, "USD"),
        "What takes longest": job.bound,
    }


def _moved(job: JobRun) -> list[tuple[str, str, str]]:
    return [
        (path, digits(job.days * low), digits(job.days * high)) for path, low, high in job.drivers
    ]
