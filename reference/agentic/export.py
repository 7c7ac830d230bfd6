"""Trajectories as lines of JSON: messages, tools, what is learned, verdict and provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reference.agentic.sampling import Candidate
from reference.agentic.tasks.task import Task
from reference.dialog import Dialog, dialog_json
from reference.text.template import weighed


def row_of(task: Task, at: int, kept: Candidate, generator: str, segments: bool) -> dict[str, Any]:
    """One line. `learned` says of each message whether a model is trained to say it."""
    dialog, verdict = kept.trajectory.dialog, kept.trajectory.verdict
    row = {
        "id": task.id,
        **dialog_json(dialog),
        "learned": [one.role == "assistant" for one in dialog.messages],
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
            "tools": [one.name for one in task.agent.tools],
            "called": sorted({call.name for one in dialog.messages for call in one.calls}),
            "goals": len(task.goals),
            "withheld": sorted(task.withheld),
            "generator": generator,
            "split": task.agent.split,
        },
    }
    return {**row, "segments": segments_of(dialog)} if segments else row


def segments_of(dialog: Dialog) -> list[list[Any]]:
    """The rendered template: per part its text, whether it is a marker, whether it is learned."""
    return [[part.segment.text, part.segment.marker, part.learned] for part in weighed(dialog)]


def line_of(row: Mapping[str, Any]) -> str:
    """The row as one line, always the same for the same row."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
