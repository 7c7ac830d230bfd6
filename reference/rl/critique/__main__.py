"""`python -m reference.rl.critique --tasks FAMILY --out FILE`: comparisons to teach a critic,
before any run: answers to verifiable tasks, with their verdicts, as a file for `python -m
reference.sft`.

The policy `oracle` gives the answers that families ship: a solution, and tricks that fail. A
generator samples several answers.

Exit codes: 0 written, 1 a bug, 2 usage, 3 invalid configuration.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reference.agentic.chance import drawn
from reference.agentic.environment import Budget, judged, play
from reference.ending import exit_code, say, write_file
from reference.generate.choose import choose
from reference.generate.request import Generator, Sampling
from reference.rl.critique.ranking import (
    QuestionAnswers,
    Rubric,
    VerifiedPair,
    comparison_rows,
    rubrics,
    verified_pairs,
)
from reference.rl.gym.environments import Turns, family, item, level_numbers, names
from reference.rl.tasks import RlTask, TasksSpec, tasks_of
from twin.errors import Problem, UsageError

ORACLE = "oracle"


@dataclass(frozen=True, slots=True)
class BootstrapPlan:
    """The tasks, who answers them, and how often."""

    family: str
    levels: tuple[int, ...]
    count: int
    seed: int
    policy: str
    answers: int


def bootstrapped(plan: BootstrapPlan) -> list[VerifiedPair]:
    """Pairs of a right and a wrong answer. Raises UsageError TW654 where no task has both, or its
    answers are tool calls, and the errors of generators and families."""
    first = item(plan.family, min(plan.levels, default=1), plan.seed)
    if first.environment.opening.tools:
        message = f"answers of `{plan.family}` are tool calls, which a critic cannot compare"
        raise UsageError([Problem("TW654", "--tasks", message, "take a family without tools")])
    groups = _oracle(plan) if plan.policy == ORACLE else _played(plan, choose(plan.policy))
    pairs = verified_pairs(groups, plan.count * plan.answers, plan.seed)
    if not pairs:
        message = f"`{plan.policy}` has no task with both a right and a wrong answer"
        fix = "easier or harder `--levels`, more `--answers`, or `--policy oracle`"
        raise UsageError([Problem("TW654", "--policy", message, fix)])
    return pairs


def write(file: Path, pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric]) -> int:
    """Write the pairs in both orders, a dialogue per line; returns the number of lines. Raises
    UsageError TW655."""
    rows = comparison_rows(pairs, rubrics)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    write_file(file, "".join(lines), "TW655", "--out")
    return len(lines)


def _oracle(plan: BootstrapPlan) -> list[QuestionAnswers]:
    levels = plan.levels or tuple(range(1, len(family(plan.family).levels) + 1))
    groups: list[QuestionAnswers] = []
    for at in range(plan.count):
        level, number = levels[at % len(levels)], plan.seed * 1_000_000
        made, other = (item(plan.family, level, seed) for seed in (number + at, number - at - 1))
        hacks = (turns for turns in made.hacks().values() if _last(turns).strip())
        # Judged: a trick that passes would teach the critic wrong.
        wrong = [
            turns
            for turns in (other.solve(), *hacks)
            if not judged(made.environment, turns).success
        ]
        drawn("bootstrap", plan.family, plan.seed, at).shuffle(wrong)
        answers = [(_last(turns), False) for turns in wrong[: plan.answers]]
        question = made.environment.opening.messages[-1].content
        groups.append((question, [(_last(made.solve()), True)] * len(answers) + answers))
    return groups


def _played(plan: BootstrapPlan, policy: Generator) -> list[QuestionAnswers]:
    spec = TasksSpec(source=plan.family, count=plan.count, seed=plan.seed, levels=plan.levels)
    return [_answered(task, policy, plan) for task in tasks_of([spec]).values()]


def _answered(task: RlTask, policy: Generator, plan: BootstrapPlan) -> QuestionAnswers:
    answers: list[tuple[str, bool]] = []
    for at in range(plan.answers):
        sampling = Sampling(temperature=1.0, max_tokens=128, seed=plan.seed + at)
        played = play(task.environment, policy, Budget(steps=16, sampling=sampling))
        answers.append((played.dialog.messages[-1].content, played.verdict.success))
    return task.environment.opening.messages[-1].content, answers


def _last(turns: Turns) -> str:
    return turns[-1].text if turns else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def _command(words: argparse.Namespace) -> int:
    chosen = [rubric for file in words.rubrics.split(",") for rubric in rubrics(file)]
    options = (words.tasks, words.levels, words.count, words.seed, words.policy, words.answers)
    pairs = bootstrapped(BootstrapPlan(*options))
    count = write(Path(words.out), pairs, chosen)
    say(f"{len(pairs)} comparisons, {count} dialogues in both orders: `{words.out}`")
    if words.json:
        facts = {"version": 1, "comparisons": len(pairs), "dialogues": count, "file": words.out}
        sys.stdout.write(json.dumps(facts) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.rl.critique",
        description="Write comparisons with known outcomes for `python -m reference.sft`.",
    )
    parser.add_argument("--tasks", required=True, choices=names(), help="a family of the gym")
    parser.add_argument("--levels", type=level_numbers, default=(), help="such as 1,2 [all]")
    parser.add_argument("--count", type=_count, default=64, help="tasks")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tasks")
    parser.add_argument(
        "--policy",
        default=ORACLE,
        help="who answers: `oracle`, a run's folder, or a server's address",
    )
    parser.add_argument("--answers", type=_count, default=4, help="answers to each task")
    parser.add_argument("--rubrics", default="core,prescriptive", help="files of rubrics")
    parser.add_argument("--out", required=True, metavar="FILE", help="JSONL of dialogues")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"`{text}` is not 1 to 1,000,000")
    return number


if __name__ == "__main__":
    sys.exit(main())
