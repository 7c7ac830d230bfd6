"""The outputs of a synthesis: rows of trajectories, counts, a summary, the coverage map."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from reference.agentic.coverage import coverage_svg, coverage_table
from reference.agentic.repository import share_near
from reference.agentic.sampling import Candidate
from reference.agentic.task import ToolTask
from reference.agentic.tool_spec import form_of
from reference.dialog import Dialog, dialog_json
from reference.text.template import weighed

if TYPE_CHECKING:
    from reference.agentic.run import Scene


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
    tools, judged, kept = report["tools"], report["judged"], report["kept"]
    near, nouns = tools["near-duplicates among the tools"], tools["the same, nouns masked, too"]
    made = f"tools: {tools['total']:,} in {tools['categories']} categories and "
    made += f"{tools['applications']} applications, "
    made += f"{tools['different forms of arguments']} forms of arguments"
    alike = f"near-duplicates: {tools['near-duplicates rejected']} of {tools['candidates']:,} "
    alike += f"candidates rejected; share left {near:.3f}, with nouns masked, too, {nouns:.3f}"
    failed = f"judged: {judged['dialogues']:,} dialogues, {judged['failed']:,} failed "
    failed += f"(share {judged['failed share']:.3f})"
    calls = f"  depths {_listed(kept['depths'])}; {kept['calls']:,} calls of "
    calls += f"{kept['tools called']:,} tools"
    causes = [f"  {count:>6} {cause}" for cause, count in judged["causes"].items()]
    agents = f"agents: {report['agents']['total']}"
    rows = f"kept: {kept['trajectories']:,} trajectories ({_listed(kept['splits'])})"
    return [made, alike, agents, failed, *causes, rows, calls, *_logs(report)]


def _logs(report: dict[str, Any]) -> list[str]:
    logs = report.get("imported logs")
    if logs is None:
        return []
    odd = "; ".join(logs["named"][:5])
    reasons = f"; odd: {odd}" if odd else ""
    return [f"logs: {logs['kept']:,} of {logs['dialogues']:,} dialogues imported{reasons}"]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{key}: {count:,}" for key, count in counts.items())


def _counts(values: Iterable[Any], **more: int) -> dict[str, int]:
    counts = Counter(map(str, values))
    return {**more, **dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))}


def _spread(values: Iterable[int]) -> dict[str, int]:
    ordered = sorted(values)
    if not ordered:
        return {}
    count = len(ordered)
    return {"median": ordered[count // 2], "p95": ordered[count * 95 // 100], "max": ordered[-1]}
