"""Two evaluations of the same tasks, case by case: the difference and its interval.

The same questions are hard for both models, so the interval of the paired difference is narrower
than the two of the models suggest (Miller 2024, arXiv:2411.00640, section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from reference.evaluate.ask.way import Row, Way, way
from reference.evaluate.journal import read_document, read_rounds
from reference.evaluate.statistics.intervals import Interval, ratio
from reference.evaluate.table import grid, number

_FEWEST: Final = 6
"""Groups below which no difference is told: of five that all go one way a coin gives as many in one
of 16 (the sign test)."""


def compare(first: Path, second: Path) -> dict[str, Any]:
    """The second less the first, by task, as a JSON document. Raises UsageError TW588 where one of
    them is no finished evaluation."""
    documents = [read_document(first), read_document(second)]
    tasks: dict[str, Any] = {}
    for name, one in documents[0]["tasks"].items():
        other = documents[1]["tasks"].get(name)
        tasks[name] = _task((first, second), name, one, other)
    for name in documents[1]["tasks"].keys() - tasks.keys():
        tasks[name] = {"skipped": "only the second one has it"}
    models = [one["model"] for one in documents]
    return {"version": 1, "models": models, "tasks": tasks}


def _task(
    folders: tuple[Path, Path],
    name: str,
    one: Mapping[str, Any],
    other: Mapping[str, Any] | None,
) -> dict[str, Any]:
    if other is None:
        return {"skipped": "only the first one has it"}
    if one["digest"] != other["digest"]:
        return {"skipped": "the two were asked different cases, or otherwise"}
    if "skipped" in one or "skipped" in other:
        return {"skipped": "one of them could not be asked"}
    metric = next(iter(one["metrics"]))
    kind = way(one["ask"])
    rows = [{row["id"]: row for part in read_rounds(at, name) for row in part} for at in folders]
    shared = [key for key in rows[0] if key in rows[1]]
    found = paired(kind, [(rows[0][key], rows[1][key]) for key in shared])
    low, high = found.low, found.high
    better = one["better"]
    many = len({rows[0][key]["group"] for key in shared}) >= _FEWEST
    known = many and low is not None and high is not None and (low > 0 or high < 0)
    gains = (found.value > 0) == (better == "higher")
    if low == high:
        # No case differs from another: their spread says nothing.
        found = replace(found, low=None, high=None)
    return {
        "metric": metric,
        "first": one["metrics"][metric]["value"],
        "second": other["metrics"][metric]["value"],
        "difference": asdict(found),
        "better": better,
        "verdict": ("better" if gains else "worse") if known else "not told apart",
        "unpaired": len(rows[0].keys() ^ rows[1].keys()),
    }


def paired(kind: Way, pairs: list[tuple[Row, Row]]) -> Interval:
    """The difference of two models' values over cases that both were asked."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for one, other in pairs:
        (before, weight), (after, _) = kind.value(one), kind.value(other)
        groups.setdefault(one["group"], []).append((after - before, weight))
    return ratio(groups, "paired t")


def shown(document: Mapping[str, Any]) -> str:
    """The comparison as a Markdown table."""
    rows: list[list[str]] = []
    for name, one in document["tasks"].items():
        if "skipped" in one:
            rows.append([name, "", "", "", "", "", f"skipped: {one['skipped']}"])
            continue
        found = one["difference"]
        between = f"{number(found['low'])} to {number(found['high'])}"
        values = [number(one["first"]), number(one["second"]), f"{found['value']:+.4f}", between]
        rows.append([name, one["metric"], *values, one["verdict"]])
    head = ["task", "metric", "first", "second", "difference", "interval of 0.95", "second is"]
    return "\n".join([*grid(head, rows), ""])
