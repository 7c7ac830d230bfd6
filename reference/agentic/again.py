"""Kept trajectories played again: their calls in fresh worlds, each result byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reference.agentic.judge.replayed import replay
from reference.agentic.run import Scene, scene_of
from reference.agentic.simulated import Simulated
from reference.agentic.spec import SynthesisSpec
from reference.dialog import Dialog, dialog_of
from twin.errors import Problem, UsageError


def replay_file(spec: SynthesisSpec, path: Path) -> dict[str, Any]:
    """How many calls were made again, and what came out otherwise. Raises UsageError (TW566) for
    a file that holds no trajectories."""
    scene = scene_of(spec)
    count = calls = 0
    different: list[str] = []
    for row in _rows(path):
        count += 1
        made, faults = _compared(scene, row)
        calls += made
        different += faults
    return {"version": 1, "trajectories": count, "calls": calls, "different": different}


def _compared(scene: Scene, row: dict[str, Any]) -> tuple[int, list[str]]:
    environment = scene.environment(row["provenance"]["task"])
    if environment is None or environment.task.id != row["id"]:
        return 0, [f"{row['id']}: this configuration has no such task"]
    dialog = dialog_of(row)
    found = replay(environment, dialog)
    faults = [f"{row['id']}: {one} has another result" for one in found.unequal]
    faults += [f"{row['id']}: {one}" for one in found.malformed]
    if scene.spec.user == "rules":
        faults += [f"{row['id']}: {one}" for one in _strange_turns(environment, dialog)]
    verdict = environment.judge(found.state, dialog)
    if dict(verdict.checks) != row["verdict"]["checks"]:
        faults.append(f"{row['id']}: another verdict")
    return len(found.made), faults


def _strange_turns(environment: Simulated, dialog: Dialog) -> Iterator[str]:
    """Turns of the user that the simulated user would not have said there."""
    begun = len(environment.opening.messages)
    state = environment.start()
    for at, message in enumerate(dialog.messages):
        if at < begun or message.role == "tool" or message.calls:
            continue
        so_far = Dialog(dialog.messages[: at + 1], dialog.tools)
        if message.role == "assistant":
            following = dialog.messages[at + 1] if at + 1 < len(dialog.messages) else None
            said = following.content if following is not None else None
            if environment.reply(state, so_far) != said:
                yield f"the user would not say {said!r}"


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                for name in ("provenance", "id", "verdict", "messages", "tools"):
                    row[name]
                yield row
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"`{path}` holds no trajectories: {error!r}"
        fix = "give the trajectories.jsonl of a run"
        raise UsageError([Problem("TW566", "--replay", message, fix)]) from None
