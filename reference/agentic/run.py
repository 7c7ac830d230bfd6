"""A synthesis in a folder: tools, agents, tasks, dialogues, journal, report; and its replay.

Rejection sampling: several dialogues per task are judged, and the best that passes is kept. A
generator applies the rubric to dialogues with the right end state: rules count checkpoints, a
model reads the dialogue.

A task's result is on disk before the next task begins, so a killed run loses only the task in play
and repeats none. Tasks follow from the seed and their number, so a resumed run writes the same
bytes.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from reference.agentic.agent import Agent, make_agents
from reference.agentic.chance import drawn
from reference.agentic.environment import Budget, Trajectory, play
from reference.agentic.imported import read_logs, read_tools
from reference.agentic.report import coverage_of, line_of, report_of, row_of
from reference.agentic.repository import ToolRepository, evolve
from reference.agentic.simulated import Simulated, replay
from reference.agentic.spec import PlaySpec, SynthesisSpec
from reference.agentic.task_writer import ToolTask, write_task
from reference.dialog import Dialog, Message, dialog_of
from reference.files import replace_synced
from reference.generate.choose import choose
from reference.generate.request import ChatRequest, Generator, Sampling
from twin.errors import Problem, UsageError
from twin.loading.load import load_config

_SCORE: Final = re.compile(r'"score"\s*:\s*([01](?:\.\d+)?)')
_BRIEF: Final = (
    "You judge how an assistant with tools served a user. Look at the rubric: were the checkpoints "
    "reached, with few needless calls, and were the user's words followed? Whether the result is "
    'right was checked before. Answer with JSON: {"score": X}, X from 0 to 1.'
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A judged dialogue of a task."""

    trajectory: Trajectory
    seed: int
    rubric: float
    """Score of the rubric; 0 without judging if the end state is wrong."""
    passes: bool

    def facts(self) -> dict[str, Any]:
        """The journal's entry, whether it is kept or not."""
        verdict = self.trajectory.verdict
        causes = list(verdict.causes)
        if verdict.success and not self.passes:
            causes = ["ended by budget" if self.trajectory.ended != "user" else "rubric"]
        return {
            "passes": self.passes,
            "score": round(verdict.score, 4),
            "causes": causes,
            "ended": self.trajectory.ended,
            "steps": self.trajectory.steps,
        }


def candidates(
    environment: Simulated, agent: Generator, judge: Generator, spec: PlaySpec
) -> list[Candidate]:
    """The dialogues of one task, each with its own seed."""
    made: list[Candidate] = []
    for at in range(spec.candidates):
        seed = drawn("candidate", environment.task.seed, at).randrange(10**9)
        sampling = Sampling(temperature=spec.temperature, max_tokens=spec.max_tokens, seed=seed)
        played = play(environment, agent, Budget(spec.steps, sampling))
        right = played.verdict.success and played.ended == "user"
        score = rubric_score(judge, environment.task, played.dialog) if right else 0.0
        made.append(Candidate(played, seed, score, right and score >= spec.least_rubric))
    return made


def best(made: list[Candidate]) -> Candidate | None:
    """The passing dialogue with the best score, then the shortest, then the first."""
    passing = [candidate for candidate in made if candidate.passes]
    return min(passing, key=lambda one: (-one.rubric, one.trajectory.steps), default=None)


def rubric_score(judge: Generator, task: ToolTask, dialog: Dialog) -> float:
    """The rubric's score, 0 to 1; 0 if the judge's answer has none. Raises TwinError if the judge
    gives no reply."""
    called = [call.name for message in dialog.messages for call in message.calls]
    metadata = {"kind": "judge", "wanted": list(task.rubric.tools), "called": called}
    turns = (Message("system", _BRIEF), Message("user", _shown(task, dialog)))
    sampling = Sampling(temperature=0.0, max_tokens=64, seed=task.seed % 10**9)
    answer = judge.complete(ChatRequest(turns, (), sampling, metadata)).text
    found = _SCORE.search(answer)
    return min(1.0, float(found[1])) if found else 0.0


def _shown(task: ToolTask, dialog: Dialog) -> str:
    rubric = {
        "checkpoints": task.rubric.checkpoints,
        "expected tools": task.rubric.tools,
        "must be told": task.rubric.facts,
    }
    lines = [json.dumps(rubric, ensure_ascii=False)]
    for message in dialog.messages:
        calls = "".join(f" [{call.name} {call.arguments}]" for call in message.calls)
        lines.append(f"{message.role}: {message.content}{calls}")
    return "\n".join(lines)


CONFIG: Final = "config.json"
JOURNAL: Final = "journal.jsonl"
TRAJECTORIES: Final = "trajectories.jsonl"
REPORT: Final = "report.json"
IMPORTED: Final = "imported.jsonl"

Tell = Callable[[int, int, int], None]
"""Called after each task with the counts of tasks done, dialogues kept, dialogues wanted."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The tools, agents and generators of a synthesis."""

    spec: SynthesisSpec
    repository: ToolRepository
    agents: tuple[Agent, ...]
    agent: Generator
    user: Generator
    judge: Generator

    def environment(self, at: int) -> Simulated | None:
        """Task number `at` as an environment; None if its agent's tools allow none."""
        spec, who = self.spec, self.agents[at % len(self.agents)]
        task = write_task(who, spec.tasks, spec.repository.terse, at, spec.seed)
        if task is None:
            return None
        return Simulated(task, spec.chance, self.user, spec.repository.terse)


def scene_of(spec: SynthesisSpec) -> Scene:
    """The scene of a synthesis. Raises TwinError for an unknown generator or unreadable file, and
    if no application has tools for a task (TW563)."""
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


@cache
def preset_scene(preset: str, seed: int | None = None) -> Scene:
    """The scene of a built-in preset, with its own seed or another one."""
    changes = [] if seed is None else [f"seed={seed}"]
    path = Path(__file__).with_name("presets") / f"{preset}.yaml"
    return scene_of(load_config(SynthesisSpec, path, changes))


def synthesise(spec: SynthesisSpec, existing: str, tell: Tell | None = None) -> dict[str, Any]:
    """Run the synthesis in its folder and return the report. `existing` says what happens to a run
    in the folder: `refuse`, `resume` or `fresh`. Raises UsageError (TW562)."""
    folder = Path(spec.output)
    _prepare(folder, spec, existing)
    scene = scene_of(spec)
    lines = _whole_lines(folder / JOURNAL)
    kept = sum(line["row"] is not None for line in lines)
    seen = {_request_key(line["row"]) for line in lines if line["row"] is not None}
    synced = time.monotonic()
    with (folder / JOURNAL).open("ab") as journal:
        for entry in _lines(scene, len(lines)):
            if kept >= spec.kept:
                break
            again = entry["row"] is not None and _request_key(entry["row"]) in seen
            line = {**entry, "row": None, "repeated": True} if again else entry
            if line["row"] is not None:
                seen.add(_request_key(line["row"]))
                kept += 1
            journal.write(line_of(line).encode())
            # A killed process loses nothing flushed; a power cut loses the last second, which is
            # played again.
            journal.flush()
            if time.monotonic() - synced > 1:
                os.fsync(journal.fileno())
                synced = time.monotonic()
            lines.append(line)
            if tell is not None:
                tell(len(lines), kept, spec.kept)
    return _close(folder, scene, lines)


def _lines(scene: Scene, first: int) -> Iterator[dict[str, Any]]:
    """The journal's lines from task `first` on, in order; tasks run in parallel."""
    at_once = scene.spec.play.at_once
    with ThreadPoolExecutor(at_once, "tasks") as pool:
        for start in range(first, scene.spec.most_tasks, at_once):
            numbers = range(start, min(start + at_once, scene.spec.most_tasks))
            yield from pool.map(partial(_line, scene), numbers)


def _line(scene: Scene, at: int) -> dict[str, Any]:
    environment = scene.environment(at)
    if environment is None:
        return {"task": at, "tried": [], "row": None}
    played = candidates(environment, scene.agent, scene.judge, scene.spec.play)
    if all(one.trajectory.ended.startswith("error") for one in played):
        message = f"no dialogue could be played: {played[0].trajectory.ended}"
        raise UsageError([Problem("TW564", "agent", message, "see to the server, then --resume")])
    kept = best(played)
    task = environment.task
    row = None
    if kept is not None:
        row = row_of(task, at, kept, scene.spec.agent, scene.spec.segments)
    tried = [candidate.facts() for candidate in played]
    return {"task": at, "depth": task.depth, "tried": tried, "row": row}


def _request_key(row: dict[str, Any]) -> str:
    """The tools and the user's first words; equal keys mean repeated dialogues."""
    first = next(one["content"] for one in row["messages"] if one["role"] == "user")
    return f"{' '.join(row['provenance']['tools'])}\n{first}"


def _prepare(folder: Path, spec: SynthesisSpec, existing: str) -> None:
    given = spec.model_dump(mode="json")
    # The folder, the number kept and the parallelism do not change the trajectories.
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
    """The journal's whole lines; half a line at the end is cut off."""
    if not journal.exists():
        return []
    parsed: list[dict[str, Any]] = []
    with journal.open("rb+") as lines:
        whole = 0
        for line in lines:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            parsed.append(json.loads(line))
        lines.truncate(whole)
    return parsed


def _close(folder: Path, scene: Scene, lines: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [line["row"] for line in lines if line["row"] is not None]
    replace_synced(folder / TRAJECTORIES, "".join(map(line_of, rows)))
    report = report_of(scene, lines)
    if scene.spec.logs:
        report["imported logs"] = _imported(folder, scene.spec.logs)
    replace_synced(folder / REPORT, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    for name, text in coverage_of(scene).items():
        replace_synced(folder / name, text)
    return report


def _imported(folder: Path, logs: Sequence[str]) -> dict[str, Any]:
    imported = read_logs(map(Path, logs))
    replace_synced(folder / IMPORTED, "".join(map(line_of, imported.rows)))
    return imported.report()


def replay_file(spec: SynthesisSpec, path: Path) -> dict[str, Any]:
    """Make the calls of kept trajectories again in fresh worlds, and report the differences. Raises
    UsageError (TW566) for a file without trajectories."""
    scene = scene_of(spec)
    count = calls = 0
    different: list[str] = []
    for row in _trajectories(path):
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
    again = replay(environment, dialog)
    faults = [f"{call} has another result" for call in again.unequal]
    faults += again.malformed
    if scene.spec.user == "rules":
        faults += _strange_turns(environment, dialog)
    verdict = environment.judge(again.state, dialog)
    if dict(verdict.checks) != row["verdict"]["checks"]:
        faults.append("another verdict")
    return len(again.calls), [f"{row['id']}: {fault}" for fault in faults]


def _strange_turns(environment: Simulated, dialog: Dialog) -> Iterator[str]:
    """User messages that the simulated user would not have written."""
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


def _trajectories(path: Path) -> Iterator[dict[str, Any]]:
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
