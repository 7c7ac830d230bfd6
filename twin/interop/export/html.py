"""One page to send: the verdict, the app's figures, the assumptions, and the scenario itself.

The page is self-contained: every value escaped, styles and scripts inside, nothing loaded from
outside. `twin run REPORT.html` answers the scenario in it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
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
from twin.loading.embedded import BEGIN, END
from twin.reports import KPIS, Report, verdict
from twin.reports.expect import sentence
from twin.reports.memory_series import activations_by_op, memory_series
from twin.reports.network_map import network_map
from twin.reports.network_use import network_use
from twin.reports.numbers import show
from twin.reports.waterfall import waterfall
from twin.scenario import Scenario
from twin.sources import Sourced

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
    use, network, name = network_use(run.plan, run.trace), network_map(run.plan), run.report.name
    longest = use.collectives[0].axis if use.collectives else None
    group = longest if longest in network.groups else None
    return topology(network, use, group, name, _THEME), collectives(use, name, _THEME)


_STYLE = Path(__file__).with_name("page.css")
_SCRIPT = Path(__file__).with_name("page.js")
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
"""What a browser may load for the page: only what it brings along."""


def page(run: Run, stamp: Stamp, pictures: Mapping[str, Sequence[Picture]]) -> str:
    """The whole document."""
    report, drawn = run.report, [one for group in pictures.values() for one in group]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            _head(report),
            "<body><main>",
            _answer(report),
            *_expectations(report),
            *_figures(pictures),
            _warnings(report),
            _assumptions(run.scenario),
            _scenario(run.scenario),
            _footer(stamp),
            "</main>",
            f"<script>{javascript()}</script>",
            f'<script type="application/json" id="figures">{_figure_data(drawn)}</script>',
            f"<script>{_SCRIPT.read_text('utf-8')}</script>",
            "</body></html>",
            "",
        ]
    )


def _head(report: Report) -> str:
    return (
        f'<head><meta charset="utf-8"><title>{escape(report.name)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE.read_text('utf-8')}</style></head>"
    )


def _answer(report: Report) -> str:
    """Verdict first, then the key figures."""
    kind = "fits" if report.fits else "unfit"
    figures = [
        {"Key figure": kpi.label, "Value": show(report.kpis[kpi.key], kpi.unit)} for kpi in KPIS
    ]
    return (
        f'<h1>{escape(report.name)}</h1><p class="verdict {kind}">{escape(verdict(report))}</p>'
        f"<section>{_table(figures)}</section>"
    )


def _expectations(report: Report) -> Iterable[str]:
    """What came of each expectation; nothing where there are none."""
    if report.expectations:
        lines = "".join(f"<li>{escape(sentence(one))}</li>" for one in report.expectations)
        yield f"<section><h2>Expectations</h2><ul>{lines}</ul></section>"


def _figures(pictures: Mapping[str, Sequence[Picture]]) -> Iterable[str]:
    number = 0
    for heading, group in pictures.items():
        shown: list[str] = []
        for picture in group:
            shown.append(_figure(picture, number))
            number += 1
        yield f"<section><h2>{escape(heading)}</h2>{''.join(shown)}</section>"


def _figure(picture: Picture, number: int) -> str:
    """The finding, how to read it, the place of the chart, and its numbers as a table."""
    findings = "<br>".join(escape(line) for line in picture.title.splitlines())
    numbers = _folded("The same as a table", _table(picture.table)) if picture.table else ""
    return (
        f'<figure><h3>{findings}</h3><p class="caption">{escape(picture.caption)}</p>'
        f'<div class="plot" id="figure-{number}" role="img" aria-label="{escape(picture.alt)}">'
        "</div>"
        f"{numbers}</figure>"
    )


def _figure_data(pictures: Sequence[Picture]) -> str:
    """The figures as one JSON list that cannot end the script it stands in."""
    data = json.dumps([plain(one.figure) for one in pictures], separators=(",", ":"))
    return data.replace("<", "\\u003c")


def _warnings(report: Report) -> str:
    lines = "".join(
        f"<li>{escape(one.message)} <code>{escape(one.code)}</code></li>" for one in report.warnings
    )
    return f"<section><h2>Before you trust these numbers</h2><ul>{lines}</ul></section>"


def _assumptions(scenario: Scenario) -> str:
    """Every catalog number that was used, and where it comes from."""
    rows = [
        {"Number": path, "Value": _value(known)} | _origin(known)
        for path, known in scenario.ledger.items()
    ]
    return f"<section><h2>Numbers from the catalog, and their sources</h2>{_table(rows)}</section>"


def _value(known: Sourced) -> str:
    return str(known.value) + (f" ({known.range[0]} to {known.range[1]})" if known.range else "")


def _origin(known: Sourced) -> dict[str, str]:
    source = known.source
    cited = f"{source.title}, {source.date}, {source.url}" if source else ""
    return {"How known": known.kind, "Source": "; ".join(filter(None, [cited, known.note]))}


def _scenario(scenario: Scenario) -> str:
    """The scenario for people, and once more for the twin, which finds it by its marks."""
    text = resolve(scenario, comments=False)
    shown = _folded("Every field, resolved", f"<pre>{escape(text)}</pre>")
    # `<` stands in quoted text only, where YAML reads the escape.
    embedded = text.replace("<", "\\u003c")
    return f"<section><h2>The scenario</h2>{shown}\n{BEGIN}\n{embedded}{END}\n</section>"


def _footer(stamp: Stamp) -> str:
    """Where the page came from."""
    rows = [
        {"Stamp": name.replace("_", " "), "": text}
        for name, text in asdict(stamp).items()
        if name != "command"
    ]
    return (
        f"<footer><h2>Where this page came from</h2>{_table(rows)}"
        f"<p>This page: <code>{escape(stamp.command)}</code></p>"
        "<p>The scenario in it again, from this file alone: <code>twin run FILE.html</code></p>"
        "</footer>"
    )


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of text; the keys of the first are the header."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in rows[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row.values())}</tr>" for row in rows
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="table"><table>{inside}</table></div>'


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The page."""
    return {"": page(run, stamp, pictures(run)).encode()}
