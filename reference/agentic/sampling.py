"""Rejection sampling: several dialogues per task are judged, and the best that passes is kept.

A generator applies the rubric to dialogues with the right end state: rules count checkpoints, a
model reads the dialogue.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from reference.agentic.chance import drawn
from reference.agentic.play import Budget, Trajectory, play
from reference.agentic.simulated import Simulated
from reference.agentic.spec import PlaySpec
from reference.agentic.task import ToolTask
from reference.dialog import Dialog, Message
from reference.generate.request import ChatRequest, Generator, Sampling

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
