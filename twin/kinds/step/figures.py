"""The figures of a training step: where its time goes, its timeline, memory, network and cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from twin.engine.trace import Trace
from twin.figures.charts import Control, View
from twin.figures.cost import amounts, days_lost
from twin.figures.differences import step_deltas
from twin.figures.memory import (
    host_memory,
    host_over_time,
    memory_map,
    memory_over_time,
    peak_memory,
    stage_memory,
)
from twin.figures.network import GROUP_WORDS, collectives, links, topology, windows
from twin.figures.palette import Theme
from twin.figures.plotly import Picture, capital
from twin.figures.step import scenario_steps, stage_steps, step_losses
from twin.figures.timeline import (
    LANES,
    overview,
    played_ns,
    side_by_side,
    start_window,
    timeline,
)
from twin.figures.uneven import waiting_map
from twin.reports.compare import Comparison
from twin.reports.memory_series import activations_by_op, memory_series
from twin.reports.network_map import network_map
from twin.reports.network_use import network_use
from twin.reports.waterfall import waterfall

if TYPE_CHECKING:
    from twin.kinds.base import Run

_CRITICAL = Control(
    "critical",
    "Critical path",
    "switch",
    default=False,
    help="The chain of kernels and transfers that determines the step time.",
)


def views(run: Run) -> Iterator[View]:
    """Every figure of a step, by section."""
    yield from _summary(run)
    yield from _timeline(run)
    yield from _memory(run)
    yield from _network(run)
    yield from _cost(run)


def _summary(run: Run) -> Iterator[View]:
    report = run.report
    yield View(
        "Summary",
        "Where the step time goes",
        "losses",
        lambda theme, _: step_losses(waterfall(run.plan, report), report.name, theme),
    )
    if report.uneven is not None:
        gpus = run.plan.scenario.cluster.node.gpus
        yield View(
            "Summary",
            "Who waits where ranks differ",
            "waiting",
            lambda theme, _: waiting_map(report.uneven, gpus, report.name, theme),
        )


def _timeline(run: Run) -> Iterator[View]:
    trace = run.trace
    window = Control(
        "window",
        "Window to look at, in seconds",
        "window",
        start_window(trace),
        end_ns=played_ns(trace),
    )
    lanes = Control("lanes", "Lanes", "choice", "compute", LANES)
    yield View(
        "Timeline",
        "The whole step",
        "overview",
        lambda theme, chosen: overview(trace, theme, **chosen),
        (_CRITICAL,),
    )
    yield View(
        "Timeline",
        "Pass by pass",
        "timeline",
        lambda theme, chosen: timeline(trace, theme, **chosen),
        (window, lanes, _CRITICAL),
    )
    yield View("Timeline", "Stages", "stage steps", lambda theme, _: stage_steps(run.report, theme))


def _memory(run: Run) -> Iterator[View]:
    memory, name = run.report.memory, run.report.name
    trace: Trace = run.trace

    def peak(theme: Theme, _: object) -> Picture:
        return peak_memory(memory, activations_by_op(run.plan, memory.peak.stage), name, theme)

    roles = dict(enumerate(trace.roles))
    fullest = memory.peak.stage * len(trace.roles) // run.plan.mesh.pipeline
    role = Control("role", "Rank of", "choice", fullest, roles)
    yield View("Memory", "Peak of the fullest GPU", "peak", peak)
    yield View(
        "Memory",
        "Peak of every stage",
        "stages",
        lambda theme, _: stage_memory(memory, name, theme),
    )
    if memory.host:
        yield View(
            "Memory", "Host memory", "host", lambda theme, _: host_memory(memory, name, theme)
        )
    yield View(
        "Memory",
        "Memory over the step",
        "over time",
        lambda theme, chosen: memory_over_time(
            memory_series(run.plan, trace, chosen["role"]), memory, trace, theme
        ),
        (role,),
    )
    if memory.host:
        yield View(
            "Memory",
            "Host memory over the step",
            "host over time",
            lambda theme, chosen: host_over_time(
                memory_series(run.plan, trace, chosen["role"]), trace, theme
            ),
            (role,),
        )
    yield View(
        "Memory",
        "Stages and categories as a map",
        "map",
        lambda theme, _: memory_map(memory, name, theme),
        folded=True,
    )


def _network(run: Run) -> Iterator[View]:
    use = network_use(run.plan, run.program, run.trace)
    network, name = network_map(run.plan), run.report.name
    # The group that communicates most is of the axis of the longest collective.
    longest = use.collectives[0].axis if use.collectives else None
    group = Control(
        "group",
        "Show the group of the first rank",
        "choice",
        longest if longest in network.groups else "",
        {"": "None", **{key: capital(GROUP_WORDS.get(key, key)) for key in network.groups}},
    )
    yield View(
        "Network",
        "The cluster and its links",
        "topology",
        lambda theme, chosen: topology(network, use, chosen["group"] or None, name, theme),
        (group,),
    )
    yield View("Network", "Use of links", "links", lambda theme, _: links(use, name, theme))
    overlap = run.report.overlap
    if any(layer.demand.alone for layer in overlap):
        yield View(
            "Network",
            "Can the experts' all-to-all hide?",
            "windows",
            lambda theme, _: windows(overlap, name, theme),
        )
    yield View(
        "Network", "Collectives", "collectives", lambda theme, _: collectives(use, name, theme)
    )


def _cost(run: Run) -> Iterator[View]:
    goodput, bill = run.report.goodput, run.report.bill
    if goodput is not None:
        yield View(
            "Cost", "Time lost to failures", "lost", lambda theme, _: days_lost(goodput, theme)
        )
    if bill.cost is not None:
        rows = {"without failures": dict(bill.cost)}
        if share := run.report.kpis["goodput_fraction"]:
            rows["with failures"] = {name: usd / share for name, usd in bill.cost.items()}
        yield View(
            "Cost", "Cost by part", "cost", lambda theme, _: amounts(rows, "USD", "Cost", theme)
        )
    watts = bill.watts
    if watts is not None:
        yield View(
            "Cost",
            "Power",
            "power",
            lambda theme, _: amounts({"per GPU": watts.parts}, "W", "Mean power", theme),
        )


def comparison_views(runs: Sequence[Run], comparison: Comparison) -> Sequence[View]:
    """Step times by cause, their differences, and the timelines one above the other."""
    steps = View(
        "", "Step time", "steps", lambda theme, _: scenario_steps(comparison.reports, theme)
    )
    deltas = View(
        "", "Where the difference lies", "deltas", lambda theme, _: step_deltas(comparison, theme)
    )
    traces = [(run.report.name, run.trace) for run in runs]
    both = View("", "Timelines", "timelines", lambda theme, _: side_by_side(traces, theme))
    return steps, deltas, both
