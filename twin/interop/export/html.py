"""One page to send: the verdict, the app's figures, the assumptions, and the scenario itself.

The page is self-contained: every value escaped, styles and scripts inside, nothing loaded from
outside. `twin run REPORT.html` answers the scenario in it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from itertools import count
from pathlib import Path
from string import Template
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
from twin.figures.plotly import Picture, javascript, plain
from twin.figures.step import stage_steps, step_losses
from twin.figures.timeline import overview, start_window, timeline
from twin.interop.export.base import Stamp
from twin.loading import resolve
from twin.loading.files import BEGIN, END
from twin.reports import KPIS, Report, verdict
from twin.reports.head import sentence
from twin.reports.memory_series import activations_by_op, memory_series
from twin.reports.network_map import network_map
from twin.reports.network_use import network_use
from twin.reports.waterfall import waterfall
from twin.scenario import Scenario

SUFFIX = ".html"
PARTS = ("",)
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
    use = network_use(run.plan, run.program, run.trace)
    network, name = network_map(run.plan), run.report.name
    longest = use.collectives[0].axis if use.collectives else None
    group = longest if longest in network.groups else None
    return topology(network, use, group, name, _THEME), collectives(use, name, _THEME)


_TEMPLATE, _STYLE, _SCRIPT = (
    Path(__file__).with_name(f"page.{ending}") for ending in ("html", "css", "js")
)


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The page."""
    return {"": page(run, stamp, pictures(run)).encode()}


def page(run: Run, stamp: Stamp, pictures: Mapping[str, Sequence[Picture]]) -> str:
    """The whole document; every text in it is escaped, or JSON or YAML without `<`."""
    report: Report = run.report
    drawn = [picture for group in pictures.values() for picture in group]
    data = json.dumps([plain(picture.figure) for picture in drawn], separators=(",", ":"))
    text = resolve(run.scenario, comments=False)
    folded = _folded("Every field, resolved", f"<pre>{escape(text)}</pre>")
    origin = {name.replace("_", " "): value for name, value in asdict(stamp).items()}
    command = origin.pop("command")
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        name=escape(report.name),
        style=_STYLE.read_text("utf-8"),
        kind="fits" if report.fits else "unfit",
        verdict=escape(verdict(report)),
        correction=escape(report.correction.words if report.correction else ""),
        kpis=_table({"Key figure": kpi.label, "Value": report.ranged(kpi)} for kpi in KPIS),
        expectations=_expectations(report),
        figures="\n".join(_figures(pictures)),
        warnings="".join(
            f"<li>{escape(warning.message)} <code>{escape(warning.code)}</code></li>"
            for warning in report.warnings
        ),
        catalog=_table(_catalog_rows(run.scenario)),
        scenario=folded,
        # `<` stands in quoted text only, where YAML reads the escape.
        embedded=f"{BEGIN}\n{_unclosing(text)}{END}",
        stamp=_table({"Stamp": name, "": value} for name, value in origin.items()),
        command=escape(command),
        plotly=javascript(),
        data=_unclosing(data),
        script=_SCRIPT.read_text("utf-8"),
    )


def _unclosing(text: str) -> str:
    """Text that cannot end the element it stands in."""
    return text.replace("<", "\\u003c")


def _expectations(report: Report) -> str:
    """The outcome of each expectation; nothing where there are none."""
    lines = "".join(f"<li>{escape(sentence(one))}</li>" for one in report.expectations)
    return f"<section><h2>Expectations</h2><ul>{lines}</ul></section>" if lines else ""


def _figures(pictures: Mapping[str, Sequence[Picture]]) -> Iterator[str]:
    """Finding, caption, place of the chart and its numbers, of each figure under its heading."""
    number = count()
    for heading, group in pictures.items():
        shown = "".join(_figure(picture, next(number)) for picture in group)
        yield f"<section><h2>{escape(heading)}</h2>{shown}</section>"


def _figure(picture: Picture, number: int) -> str:
    findings = "<br>".join(escape(line) for line in picture.title.splitlines())
    numbers = _folded("Show as table", _table(picture.table)) if picture.table else ""
    return (
        f'<figure><h3>{findings}</h3><p class="caption">{escape(picture.caption)}</p>'
        f'<div class="plot" id="figure-{number}" role="img" aria-label="{escape(picture.alt)}">'
        f"</div>{numbers}</figure>"
    )


def _catalog_rows(scenario: Scenario) -> Iterator[dict[str, str]]:
    """Every catalog number that was used, and its source."""
    for path, known in scenario.ledger.items():
        span, source = known.range, known.source
        cited = f"{source.title}, {source.date}, {source.url}" if source else ""
        yield {
            "Number": path,
            "Value": str(known.value) + (f" ({span[0]} to {span[1]})" if span else ""),
            "How known": known.kind,
            "Source": "; ".join(filter(None, [cited, known.note])),
        }


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def _table(rows: Iterable[Mapping[str, str]]) -> str:
    """Rows of text; the keys of the first are the header."""
    listed = list(rows)
    if not listed:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in listed[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row.values())}</tr>" for row in listed
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="table"><table>{inside}</table></div>'
