"""A synthesis in a folder: tools, agents, tasks, dialogues, journal, report.

A task's outcome is on the disk before the next one is begun, so a run that was killed loses the
task in play and repeats none; tasks follow from the seed and their number, so the files that come
out are the same bytes whether or not it was killed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from reference.agentic.agent import Agent, make_agents
from reference.agentic.export import line_of, row_of
from reference.agentic.logs import read_logs
from reference.agentic.report import coverage_of, report_of
from reference.agentic.sampling import best, candidates
from reference.agentic.simulated import Simulated
from reference.agentic.spec import SynthesisSpec
from reference.agentic.tasks.write import write_task
from reference.agentic.tools.evolve import Repository, evolve
from reference.agentic.tools.imported import read_tools
from reference.generate.choose import choose
from reference.generate.generator import Generator
from twin.errors import Problem, UsageError

CONFIG: Final = "config.json"
JOURNAL: Final = "journal.jsonl"
TRAJECTORIES: Final = "trajectories.jsonl"
REPORT: Final = "report.json"
IMPORTED: Final = "imported.jsonl"

Tell = Callable[[int, int, int], None]
"""Told after each task: tasks done, dialogues kept, wanted."""


@dataclass(frozen=True, slots=True)
class Scene:
    """All that tasks are made of and played with."""

    spec: SynthesisSpec
    repository: Repository
    agents: tuple[Agent, ...]
    agent: Generator
    user: Generator
    judge: Generator

    def environment(self, at: int) -> Simulated | None:
        """Task number `at` as an environment; None where its agent's tools allow none."""
        spec, who = self.spec, self.agents[at % len(self.agents)]
        task = write_task(who, spec.tasks, spec.repository.terse, at, spec.seed)
        if task is None:
            return None
        return Simulated(task, spec.chance, self.user, spec.repository.terse)


def scene_of(spec: SynthesisSpec) -> Scene:
    """Tools and agents, and who plays. Raises TwinError for a generator that is none, or files
    that cannot be read, and where no application has tools for a task (TW563)."""
    imported = [tool for path in spec.repository.imported for tool in read_tools(Path(path))]
    repository = evolve(spec.repository, spec.seed, imported)
    agents = make_agents(repository, spec.agents, spec.repository.terse, spec.seed)
    if not agents:
        message = "no application has a tool that reads and two others"
        raise UsageError([Problem("TW563", "repository", message, "allow more tools")])
    chosen = {name: choose(name) for name in {spec.agent, spec.user, spec.judge}}
    return Scene(
        spec, repository, agents, chosen[spec.agent], chosen[spec.user], chosen[spec.judge]
    )


def synthesise(spec: SynthesisSpec, existing: str, tell: Tell | None = None) -> dict[str, Any]:
    """The report; the folder of the run holds everything. `existing` is what to do with a folder
    that holds a run: `refuse`, `resume` or `fresh`. Raises UsageError TW562."""
    folder = Path(spec.output)
    _prepare(folder, spec, existing)
    scene = scene_of(spec)
    lines = _whole_lines(folder / JOURNAL)
    kept = sum(line["row"] is not None for line in lines)
    seen = {_asked(line["row"]) for line in lines if line["row"] is not None}
    synced = time.monotonic()
    with (folder / JOURNAL).open("ab") as journal:
        for found in _lines(scene, len(lines)):
            if kept >= spec.kept:
                break
            again = found["row"] is not None and _asked(found["row"]) in seen
            line = {**found, "row": None, "repeated": True} if again else found
            if line["row"] is not None:
                seen.add(_asked(line["row"]))
                kept += 1
            journal.write(line_of(line).encode())
            # A killed process loses nothing that was flushed; a power cut loses the last second,
            # which is played again.
            journal.flush()
            if time.monotonic() - synced > 1:
                os.fsync(journal.fileno())
                synced = time.monotonic()
            lines.append(line)
            if tell is not None:
                tell(len(lines), kept, spec.kept)
    return _close(folder, scene, lines)


def _lines(scene: Scene, first: int) -> Iterator[dict[str, Any]]:
    """The journal's lines from task `first` on, in order, some tasks at one time."""
    at_once = scene.spec.play.at_once
    with ThreadPoolExecutor(at_once, "tasks") as pool:
        for start in range(first, scene.spec.most_tasks, at_once):
            numbers = range(start, min(start + at_once, scene.spec.most_tasks))
            yield from pool.map(partial(_line, scene), numbers)


def _line(scene: Scene, at: int) -> dict[str, Any]:
    environment = scene.environment(at)
    if environment is None:
        return {"task": at, "tried": [], "row": None}
    found = candidates(environment, scene.agent, scene.judge, scene.spec.play)
    if all(one.trajectory.ended.startswith("error") for one in found):
        message = f"no dialogue could be played: {found[0].trajectory.ended}"
        raise UsageError([Problem("TW564", "agent", message, "see to the server, then --resume")])
    kept = best(found)
    task = environment.task
    row = None
    if kept is not None:
        row = row_of(task, at, kept, scene.spec.agent, scene.spec.segments)
    tried = [one.facts() for one in found]
    return {"task": at, "depth": task.depth, "tried": tried, "row": row}


def _asked(row: dict[str, Any]) -> str:
    """What makes a dialogue another one: its tools and the user's first words."""
    first = next(one["content"] for one in row["messages"] if one["role"] == "user")
    return f"{' '.join(row['provenance']['tools'])}\n{first}"


def _prepare(folder: Path, spec: SynthesisSpec, existing: str) -> None:
    given = spec.model_dump(mode="json")
    # More of the same, or at another pace, is not another run.
    same = {key: value for key, value in given.items() if key not in ("output", "kept")}
    del same["play"]["at_once"]
    config = folder / CONFIG
    if existing == "fresh":
        for name in (CONFIG, JOURNAL, TRAJECTORIES, REPORT):
            (folder / name).unlink(missing_ok=True)
    elif config.exists():
        held = json.loads(config.read_text(encoding="utf-8"))
        if existing == "refuse":
            raise _taken(folder, "already holds a synthesis", "add --resume or --fresh")
        if held != same:
            raise _taken(folder, "holds another synthesis", "set another `output`, or add --fresh")
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(same, indent=1) + "\n", encoding="utf-8")


def _taken(folder: Path, message: str, fix: str) -> UsageError:
    return UsageError([Problem("TW562", "output", f"`{folder}` {message}", fix)])


def _whole_lines(journal: Path) -> list[dict[str, Any]]:
    """The journal's lines; a half one at the end is cut off."""
    if not journal.exists():
        return []
    found: list[dict[str, Any]] = []
    with journal.open("rb+") as lines:
        whole = 0
        for line in lines:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            found.append(json.loads(line))
        lines.truncate(whole)
    return found


def _close(folder: Path, scene: Scene, lines: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [line["row"] for line in lines if line["row"] is not None]
    _write(folder / TRAJECTORIES, "".join(map(line_of, rows)))
    report = report_of(scene, lines)
    if scene.spec.logs:
        report["imported logs"] = _imported(folder, scene.spec.logs)
    _write(folder / REPORT, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    for name, text in coverage_of(scene).items():
        _write(folder / name, text)
    return report


def _imported(folder: Path, logs: Sequence[str]) -> dict[str, Any]:
    found = read_logs([Path(one) for one in logs])
    _write(folder / IMPORTED, "".join(map(line_of, found.rows)))
    return found.report()


def _write(path: Path, text: str) -> None:
    """The file, whole or not at all."""
    other = path.with_name(f"{path.name}.part")
    other.write_text(text, encoding="utf-8", newline="\n")
    other.replace(path)
