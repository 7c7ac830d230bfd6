"""Rejection sampling: some dialogues per task, judged; the best one that passes is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reference.agentic.chance import drawn
from reference.agentic.judge.rubric import rubric_score
from reference.agentic.play import Budget, Trajectory, play
from reference.agentic.simulated import Simulated
from reference.agentic.spec import PlaySpec
from reference.generate.generator import Generator
from reference.generate.request import Sampling


@dataclass(frozen=True, slots=True)
class Candidate:
    """One dialogue of a task, judged."""

    trajectory: Trajectory
    seed: int
    rubric: float
    """Score of the rubric; 0 where the end state was not right, and nobody asked."""
    passes: bool

    def facts(self) -> dict[str, Any]:
        """What the journal keeps of it, whether it is kept or not."""
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
    """The dialogues of one task, each with chance of its own."""
    found: list[Candidate] = []
    for at in range(spec.candidates):
        seed = drawn("candidate", environment.task.seed, at).randrange(10**9)
        sampling = Sampling(temperature=spec.temperature, max_tokens=spec.max_tokens, seed=seed)
        played = play(environment, agent, Budget(spec.steps, sampling))
        right = played.verdict.success and played.ended == "user"
        score = rubric_score(judge, environment.task, played.dialog) if right else 0.0
        found.append(Candidate(played, seed, score, right and score >= spec.least_rubric))
    return found


def best(found: list[Candidate]) -> Candidate | None:
    """The passing one with the best score, then the shortest, then the first."""
    passing = [one for one in found if one.passes]
    return min(passing, key=lambda one: (-one.rubric, one.trajectory.steps), default=None)
