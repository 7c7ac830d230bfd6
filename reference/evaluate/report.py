"""The results of an evaluation for programs and people.

The JSON document, version 1:

    version, seed, model, judge
    tasks.NAME    about, source, ask, scorer, digest, settings, cases, better, counts, and
      metrics.M     value, low, high (95 %, null where one group tells nothing), cases, how
      matrix        rows, columns, cells: of needle and attack
      skipped       in place of these: why the model could not be asked

It holds no time and no machine: the same model, tasks and seed give the same bytes.

Tables are Markdown. A matrix of shares is an SVG for any browser, light and dark: one hue from
light to dark, so that it reads without colour, and the number in every cell.

Two evaluations of the same tasks are compared case by case. The same questions are hard for both
models, so the interval of the paired difference is narrower than those of the models suggest
(Miller 2024, arXiv:2411.00640, section 4.2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment

from reference.evaluate.journal import read_document, read_rows
from reference.evaluate.protocols.protocol import EvaluationProtocol, Row, protocol
from reference.evaluate.statistics import Interval, ratio


def text_of(document: Mapping[str, Any]) -> str:
    """The document as the file has it."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


_NOTES: Final = {
    "answers_cut": "answers cut at the bound",
    "prompts_cut": "prompts cut",
    "refused": "refused as too long",
    "lengths_beyond_training": "lengths beyond training left out",
    "chance": "is chance",
    "tokens_per_solved": "tokens per solved",
    "calls": "calls",
}


def table(document: Mapping[str, Any]) -> str:
    """Every metric with its interval, the counts of what was cut, and the matrices."""
    model = ", ".join(f"{key} {value}" for key, value in document["model"].items())
    rows = [row for name, task in document["tasks"].items() for row in _task_rows(name, task)]
    lines = [f"Judged: {model}; seed {document['seed']}.", ""]
    lines += grid(["task", "metric", "value", "interval of 0.95", "cases", "notes"], rows)
    for name, task in document["tasks"].items():
        if matrix := task.get("matrix"):
            lines += ["", f"{name}: {matrix['title'].lower()}", "", *_matrix(matrix)]
    return "\n".join([*lines, ""])


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table, columns aligned."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    shown = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (head, *rows)
    ]
    return [shown[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *shown[1:]]


def number(value: float | None) -> str:
    """Four decimals, enough for bits per byte."""
    return "-" if value is None else f"{value:.4f}"


def _task_rows(name: str, task: Mapping[str, Any]) -> list[list[str]]:
    if "skipped" in task:
        return [[name, "", "", "", "", f"skipped: {task['skipped']}"]]
    rows: list[list[str]] = []
    for metric, interval in task["metrics"].items():
        if metric == "pass@1" and rows:
            continue  # it is the mean of samples in the row above
        first = not rows
        lower = " (lower is better)" if first and task["better"] == "lower" else ""
        notes = _notes(task["counts"]) if first else ""
        cells = [number(interval["value"]), _between(interval), str(interval["cases"]), notes]
        rows.append([name if first else "", f"{metric}{lower}", *cells])
    return rows


def _between(interval: Mapping[str, Any]) -> str:
    return f"{number(interval['low'])} to {number(interval['high'])}"


def _notes(counts: Mapping[str, Any]) -> str:
    notes: list[str] = []
    for key, words in _NOTES.items():
        value = counts.get(key)
        if value is None or value in (0, []):
            continue
        shown = f"{value:.4g}" if isinstance(value, float) else str(value).strip("[]")
        notes.append(f"{shown} {words}")
    return "; ".join(notes)


def _matrix(matrix: Mapping[str, Any]) -> list[str]:
    rows, columns = matrix["rows"], matrix["columns"]
    head = [f"{rows['name']} \\ {columns['name']}", *map(str, columns["values"])]
    body = [
        [str(name), *("-" if cell is None else f"{cell['value']:.2f}" for cell in cells)]
        for name, cells in zip(rows["values"], matrix["cells"], strict=True)
    ]
    return grid(head, body)


_LIGHT, _DARK = (222, 235, 247), (8, 69, 148)
"""The colours of the shares 0 and 1."""


def svg(matrix: Mapping[str, Any], about: str) -> str:
    """The picture of a matrix; a cell shows its share and the number of its cases."""
    source = Path(__file__).with_name("heatmap.svg.jinja").read_text(encoding="utf-8")
    template = Environment(autoescape=True, trim_blocks=True, keep_trailing_newline=True)
    return template.from_string(source).render(**matrix, about=about, fill=_fill)


def _fill(share: float) -> str:
    mixed = (round(a + (b - a) * share) for a, b in zip(_LIGHT, _DARK, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


_FEWEST_GROUPS: Final = 6
"""Groups below which no difference is reported: of five that all go one way a coin gives as many in
one of 16 (the sign test)."""


def compare(first: Path, second: Path) -> dict[str, Any]:
    """The second less the first, by task, as a JSON document. Raises UsageError TW588 where one of
    them is no finished evaluation."""
    documents = [read_document(first), read_document(second)]
    before, after = (document["tasks"] for document in documents)
    tasks: dict[str, Any] = {}
    for name in [*before, *sorted(after.keys() - before.keys())]:
        skipped = _skipped(before.get(name), after.get(name))
        tasks[name] = (
            {"skipped": skipped}
            if skipped
            else _difference((first, second), name, (before[name], after[name]))
        )
    models = [document["model"] for document in documents]
    return {"version": 1, "models": models, "tasks": tasks}


def _skipped(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> str | None:
    """Why a task is not compared."""
    if first is None or second is None:
        return "only the first one has it" if second is None else "only the second one has it"
    if first["digest"] != second["digest"]:
        return "the two were asked different cases, or in different ways"
    if "skipped" in first or "skipped" in second:
        return "one of them could not be asked"
    return None


def _difference(
    folders: Sequence[Path], name: str, tasks: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    metric, better = next(iter(tasks[0]["metrics"])), tasks[0]["better"]
    first, second = ({row["id"]: row for row in read_rows(at, name)} for at in folders)
    pairs = [(row, second[key]) for key, row in first.items() if key in second]
    difference = paired(protocol(tasks[0]["ask"]), pairs)
    low, high = difference.low, difference.high
    enough = len({row["group"] for row, _ in pairs}) >= _FEWEST_GROUPS
    known = enough and low is not None and high is not None and (low > 0 or high < 0)
    gains = (difference.value > 0) == (better == "higher")
    if low == high:
        # No case differs from another: their spread says nothing.
        difference = replace(difference, low=None, high=None)
    return {
        "metric": metric,
        "first": tasks[0]["metrics"][metric]["value"],
        "second": tasks[1]["metrics"][metric]["value"],
        "difference": asdict(difference),
        "better": better,
        "verdict": ("better" if gains else "worse") if known else "not told apart",
        "unpaired": len(first.keys() ^ second.keys()),
    }


def paired(kind: EvaluationProtocol, pairs: Sequence[tuple[Row, Row]]) -> Interval:
    """The difference of two models' values over the cases of both."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for first, second in pairs:
        (before, weight), (after, _) = kind.value(first), kind.value(second)
        groups.setdefault(first["group"], []).append((after - before, weight))
    return ratio(groups, "paired t")


def comparison_table(document: Mapping[str, Any]) -> str:
    """The comparison as a Markdown table."""
    rows: list[list[str]] = []
    for name, task in document["tasks"].items():
        if "skipped" in task:
            rows.append([name, "", "", "", "", "", f"skipped: {task['skipped']}"])
            continue
        values = [number(task["first"]), number(task["second"])]
        difference = task["difference"]
        values += [f"{difference['value']:+.4f}", _between(difference), task["verdict"]]
        rows.append([name, task["metric"], *values])
    head = ["task", "metric", "first", "second", "difference", "interval of 0.95", "second is"]
    return "\n".join([*grid(head, rows), ""])
