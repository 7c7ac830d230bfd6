"""The figures of the page: those of the app, on light."""

from __future__ import annotations

from typing import Final

from twin.answers import Run
from twin.figures.memory import (
    host_memory,
    host_over_time,
    memory_over_time,
    peak_memory,
    stage_memory,
)
from twin.figures.network import collectives, topology
from twin.figures.palette import Theme
from twin.figures.plotly import Picture
from twin.figures.step import stage_steps, step_losses
from twin.figures.timeline import overview, start_window, timeline
from twin.reports.memory_series import activations_by_op, memory_series
from twin.reports.network_map import network_map
from twin.reports.network_use import network_use
from twin.reports.waterfall import waterfall

_THEME: Final[Theme] = "light"


def pictures(run: Run) -> dict[str, tuple[Picture, ...]]:
    """The figures under their headings, in the order of the app's pages."""
    return {
        "Where the step goes": _step(run),
        "The pipeline as it ran": _pipeline(run),
        "Memory": _memory(run),
        "Network": _network(run),
    }


def _step(run: Run) -> tuple[Picture, ...]:
    losses = waterfall(run.plan, run.report)
    return step_losses(losses, run.report.name, _THEME), stage_steps(run.report, _THEME)


def _pipeline(run: Run) -> tuple[Picture, ...]:
    trace = run.trace
    return (
        overview(trace, _THEME, critical=True),
        timeline(trace, _THEME, start_window(trace), critical=True),
    )


def _memory(run: Run) -> tuple[Picture, ...]:
    """What fills the fullest GPU, every stage at its peak, and the fullest one over the step."""
    memory, name, trace = run.report.memory, run.report.name, run.trace
    fullest = memory.peak.stage * len(trace.roles) // run.plan.mesh.pipeline
    series = memory_series(run.plan, trace, fullest)
    device = (
        peak_memory(memory, activations_by_op(run.plan, memory.peak.stage), name, _THEME),
        stage_memory(memory, name, _THEME),
        memory_over_time(series, memory, trace, _THEME),
    )
    if not series.host:
        return device
    host = (host_memory(memory, name, _THEME), host_over_time(series, trace, _THEME))
    return (*device, *host)


def _network(run: Run) -> tuple[Picture, ...]:
    """The cluster with the group that communicates longest, and all collectives."""
    use, network, name = network_use(run.plan, run.trace), network_map(run.plan), run.report.name
    longest = use.collectives[0].axis if use.collectives else None
    group = longest if longest in network.groups else None
    return topology(network, use, group, name, _THEME), collectives(use, name, _THEME)
