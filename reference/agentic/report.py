"""What a synthesis made: counts for programs, lines for people, the coverage map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from reference.agentic.export import line_of
from reference.agentic.tools.coverage import coverage_svg, coverage_table
from reference.agentic.tools.near import form_of, share_near

if TYPE_CHECKING:
    from reference.agentic.run import Scene


def report_of(scene: Scene, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts; equal runs have equal reports."""
    rows = [line["row"] for line in lines if line["row"] is not None]
    tried = [one for line in lines for one in line["tried"]]
    failed = [one for one in tried if not one["passes"]]
    return {
        "version": 1,
        "tools": _tools(scene),
        "agents": _counts((one.split for one in scene.agents), total=len(scene.agents)),
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
            "causes": _counts(cause for one in failed for cause in one["causes"]),
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
        "categories": len({one.category for one in tools}),
        "applications": len({one.application for one in tools}),
        "candidates": candidates,
        "near-duplicates rejected": len(rejected),
        "near-duplicates of the candidates": round(len(rejected) / max(1, candidates), 4),
        "near-duplicates among the tools": round(share_near(tools, spec.near), 4),
        "the same, nouns masked, too": round(share_near(tools, spec.near, nouns=True), 4),
        "different forms of arguments": len({str(form_of(one.parameters)) for one in tools}),
        "effects": _counts(one.effect for one in tools),
        "operations": _counts(one.operation or "imported" for one in tools),
        "held-out applications": sorted(scene.repository.held_out),
    }


def coverage_of(scene: Scene) -> dict[str, str]:
    """Files by name: the map, the table, the tools."""
    tools = scene.repository.tools.values()
    return {
        "coverage.svg": coverage_svg(tools),
        "coverage.md": coverage_table(tools),
        "tools.jsonl": "".join(line_of(one.json()) for one in tools),
    }


def summary_of(report: dict[str, Any]) -> list[str]:
    """The report for people."""
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
    found = f"kept: {kept['trajectories']:,} trajectories ({_listed(kept['splits'])})"
    return [made, alike, agents, failed, *causes, found, calls, *_logs(report)]


def _logs(report: dict[str, Any]) -> list[str]:
    logs = report.get("imported logs")
    if logs is None:
        return []
    odd = "; ".join(logs["named"][:5])
    told = f"; odd: {odd}" if odd else ""
    return [f"logs: {logs['kept']:,} of {logs['dialogues']:,} dialogues taken over{told}"]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{key}: {count:,}" for key, count in counts.items())


def _counts(values: Iterable[Any], **more: int) -> dict[str, int]:
    found = Counter(str(one) for one in values)
    return {**more, **dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))}


def _spread(values: Iterable[int]) -> dict[str, int]:
    found = sorted(values)
    if not found:
        return {}
    return {
        "median": found[len(found) // 2],
        "p95": found[len(found) * 95 // 100],
        "max": found[-1],
    }
