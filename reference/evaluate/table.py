"""Results for people: Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_LOWER: Final = "lower"
_NOTED: Final = {
    "answers_cut": "answers cut at the bound",
    "prompts_cut": "prompts cut",
    "refused": "refused as too long",
    "lengths_beyond_training": "lengths beyond training left out",
    "chance": "is chance",
    "tokens_per_solved": "tokens per solved",
    "calls": "calls",
}


def table(document: Mapping[str, Any]) -> str:
    """Every metric with its interval, what was cut, and the matrices."""
    model = ", ".join(f"{key} {value}" for key, value in document["model"].items())
    rows = [row for name, one in document["tasks"].items() for row in _task_rows(name, one)]
    lines = [f"Judged: {model}; seed {document['seed']}.", ""]
    lines += grid(["task", "metric", "value", "interval of 0.95", "cases", "notes"], rows)
    for name, one in document["tasks"].items():
        if one.get("matrix"):
            lines += ["", f"{name}: {one['matrix']['title'].lower()}", "", *_matrix(one["matrix"])]
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
    """Four digits behind the point, enough for bits per byte."""
    return "-" if value is None else f"{value:.4f}"


def _task_rows(name: str, one: Mapping[str, Any]) -> list[list[str]]:
    if "skipped" in one:
        return [[name, "", "", "", "", f"skipped: {one['skipped']}"]]
    rows: list[list[str]] = []
    for metric, found in one["metrics"].items():
        if metric == "pass@1" and rows:
            continue  # it is the mean of samples that stands above
        between = f"{number(found['low'])} to {number(found['high'])}"
        first = not rows
        lower = " (lower is better)" if first and one["better"] == _LOWER else ""
        notes = _notes(one["counts"]) if first else ""
        cells = [f"{metric}{lower}", number(found["value"]), between, str(found["cases"]), notes]
        rows.append([name if first else "", *cells])
    return rows


def _notes(counts: Mapping[str, Any]) -> str:
    found: list[str] = []
    for key, words in _NOTED.items():
        value = counts.get(key)
        if value is None or value in (0, []):
            continue
        shown = f"{value:.4g}" if isinstance(value, float) else str(value).strip("[]")
        found.append(f"{shown} {words}")
    return "; ".join(found)


def _matrix(matrix: Mapping[str, Any]) -> list[str]:
    rows, columns = matrix["rows"], matrix["columns"]
    head = [f"{rows['name']} \\ {columns['name']}", *map(str, columns["values"])]
    body = [
        [str(name), *("-" if cell is None else f"{cell['value']:.2f}" for cell in cells)]
        for name, cells in zip(rows["values"], matrix["cells"], strict=True)
    ]
    return grid(head, body)
