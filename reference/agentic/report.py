"""The outputs of a synthesis: rows of trajectories, counts, a summary, the coverage map."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader

from reference.agentic.operations.base import ToolSpec, form_of
from reference.agentic.repository import share_near
from reference.agentic.task_writer import ToolTask
from reference.dialog import Dialog, dialog_json
from reference.text.template import weighed

if TYPE_CHECKING:
    from reference.agentic.run import Candidate, Scene


class Box(NamedTuple):
    """A rectangle of the map."""

    x: float
    y: float
    width: float
    height: float

    def inner(self, head: float) -> Box:
        """The area below a heading."""
        width, height = max(0.0, self.width - 2), max(0.0, self.height - head - 1)
        return Box(self.x + 1, self.y + head, width, height)


Areas = list[tuple[str, list[ToolSpec], Box]]
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=lambda name: name is not None and name.startswith("coverage.svg"),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def _filled(name: str, **facts: Any) -> str:
    return _TEMPLATES.get_template(f"{name}.jinja").render(**facts)


def coverage_table(tools: Iterable[ToolSpec]) -> str:
    """Categories with their applications, tools and effects, as Markdown."""
    return _filled("coverage.md", tools=list(tools))


def coverage_svg(tools: Iterable[ToolSpec]) -> str:
    """The treemap; each area has a title."""

    def by_size(group: tuple[str, list[ToolSpec]]) -> tuple[int, str]:
        return -len(group[1]), group[0]

    def applications(own: Iterable[ToolSpec], box: Box) -> Areas:
        return _areas(sorted(_grouped(own, "application").items()), box.inner(15))

    def cells(own: Iterable[ToolSpec], box: Box) -> Iterator[tuple[ToolSpec, Box]]:
        ordered = sorted(own, key=lambda tool: (tool.effect, tool.name))
        return zip(ordered, _cut(box.inner(10), [1] * len(ordered)), strict=True)

    groups = sorted(_grouped(tools, "category").items(), key=by_size)
    categories = _areas(groups, Box(0, 0, 1600.0, 1000.0))
    return _filled("coverage.svg", categories=categories, applications=applications, cells=cells)


def _areas(groups: Sequence[tuple[str, list[ToolSpec]]], box: Box) -> Areas:
    """Each group with its part of a box."""
    boxes = _cut(box, [len(own) for _, own in groups])
    return [(name, own, part) for (name, own), part in zip(groups, boxes, strict=True)]


def _cut(box: Box, sizes: Sequence[int]) -> list[Box]:
    """The box in parts of these sizes, by repeated halving along the longer side."""
    if len(sizes) <= 1:
        return [box] * len(sizes)
    total, at, left = sum(sizes), 0, 0
    while at < len(sizes) - 1 and (left + sizes[at] <= total / 2 or at == 0):
        left += sizes[at]
        at += 1
    share = left / total
    if box.width >= box.height:
        wide = box.width * share
        first = box._replace(width=wide)
        second = box._replace(x=box.x + wide, width=box.width - wide)
    else:
        high = box.height * share
        first = box._replace(height=high)
        second = box._replace(y=box.y + high, height=box.height - high)
    return [*_cut(first, sizes[:at]), *_cut(second, sizes[at:])]


def _grouped(tools: Iterable[ToolSpec], key: str) -> Mapping[str, list[ToolSpec]]:
    made: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        made.setdefault(getattr(tool, key), []).append(tool)
    return made


def row_of(
    task: ToolTask, at: int, kept: Candidate, generator: str, segments: bool
) -> dict[str, Any]:
    """A row of `trajectories.jsonl`. `learned` says per message whether a model learns it."""
    dialog, verdict = kept.trajectory.dialog, kept.trajectory.verdict
    row = {
        "id": task.id,
        **dialog_json(dialog),
        "learned": [message.role == "assistant" for message in dialog.messages],
        "verdict": {
            "checks": dict(verdict.checks),
            "causes": list(verdict.causes),
            "score": verdict.score,
            "rubric": kept.rubric,
        },
        "provenance": {
            "domain": task.agent.category,
            "application": task.agent.application,
            "task": at,
            "depth": task.depth,
            "seed": task.seed,
            "candidate": kept.seed,
            "agent": task.agent.name,
            "user": {"name": task.persona.name, "style": task.persona.style},
            "tools": [tool.name for tool in task.agent.tools],
            "called": sorted({call.name for message in dialog.messages for call in message.calls}),
            "goals": len(task.goals),
            "withheld": sorted(task.withheld),
            "generator": generator,
            "split": task.agent.split,
        },
    }
    return {**row, "segments": segments_of(dialog)} if segments else row


def segments_of(dialog: Dialog) -> list[list[Any]]:
    """The rendered template: text, whether it is a marker, whether it is learned, per part."""
    return [[part.segment.text, part.segment.marker, part.learned] for part in weighed(dialog)]


def line_of(row: Mapping[str, Any]) -> str:
    """The row as one line; equal rows give equal lines."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def report_of(scene: Scene, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts; equal runs have equal reports."""
    rows = [line["row"] for line in lines if line["row"] is not None]
    tried = [entry for line in lines for entry in line["tried"]]
    failed = [entry for entry in tried if not entry["passes"]]
    return {
        "version": 1,
        "tools": _tools(scene),
        "agents": _counts((agent.split for agent in scene.agents), total=len(scene.agents)),
        "tasks": {
            "tried": len(lines),
            "without a chain": sum(not line["tried"] for line in lines),
            "repeated": sum(bool(line.get("repeated")) for line in lines),
            "depths": _counts(line["depth"] for line in lines if line["tried"]),
        },
        "judged": {
            "dialogues": len(tried),
            "failed": len(failed),
            "failed share": round(len(failed) / len(tried), 4) if tried else 0.0,
            "causes": _counts(cause for entry in failed for cause in entry["causes"]),
        },
        "kept": {
            "trajectories": len(rows),
            "splits": _counts(row["provenance"]["split"] for row in rows),
            "depths": _counts(row["provenance"]["depth"] for row in rows),
            "domains": _counts(row["provenance"]["domain"] for row in rows),
            "styles": _counts(row["provenance"]["user"]["style"] for row in rows),
            "goals": _counts(row["provenance"]["goals"] for row in rows),
            "tools called": len({name for row in rows for name in row["provenance"]["called"]}),
            "calls": sum(len(m.get("tool_calls", ())) for row in rows for m in row["messages"]),
            "messages": sum(len(row["messages"]) for row in rows),
            "characters": _spread(len(line_of(row)) for row in rows),
        },
    }


def _tools(scene: Scene) -> dict[str, Any]:
    tools, spec = list(scene.repository.tools.values()), scene.spec.repository
    rejected, candidates = scene.repository.rejected, scene.repository.candidates
    return {
        "total": len(tools),
        "categories": len({tool.category for tool in tools}),
        "applications": len({tool.application for tool in tools}),
        "candidates": candidates,
        "near-duplicates rejected": len(rejected),
        "near-duplicates of the candidates": round(len(rejected) / max(1, candidates), 4),
        "near-duplicates among the tools": round(share_near(tools, spec.near), 4),
        "the same, nouns masked, too": round(share_near(tools, spec.near, nouns=True), 4),
        "different forms of arguments": len({str(form_of(tool.parameters)) for tool in tools}),
        "effects": _counts(tool.effect for tool in tools),
        "operations": _counts(tool.operation or "imported" for tool in tools),
        "held-out applications": sorted(scene.repository.held_out),
    }


def coverage_of(scene: Scene) -> dict[str, str]:
    """The files of the coverage map by name: the map, the table, the tools."""
    tools = scene.repository.tools.values()
    return {
        "coverage.svg": coverage_svg(tools),
        "coverage.md": coverage_table(tools),
        "tools.jsonl": "".join(line_of(tool.json()) for tool in tools),
    }


def summary_of(report: dict[str, Any]) -> list[str]:
    """The report in lines."""
    return _filled("summary.txt", **report, logs=report.get("imported logs")).splitlines()


def _counts(values: Iterable[Any], **more: int) -> dict[str, int]:
    counts = Counter(map(str, values))
    return {**more, **dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))}


def _spread(values: Iterable[int]) -> dict[str, int]:
    ordered = sorted(values)
    if not ordered:
        return {}
    count = len(ordered)
    return {"median": ordered[count // 2], "p95": ordered[count * 95 // 100], "max": ordered[-1]}
