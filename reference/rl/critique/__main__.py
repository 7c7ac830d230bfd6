"""Comparisons to fine-tune a critic on, before any run: answers to verifiable tasks, judged.

`oracle` answers with what families ship: a solution, and tricks that fail. A generator answers
several times as it likes. What comes out is a file for `python -m reference.sft`.

`python -m reference.rl.critique --tasks FAMILY --out FILE`: comparisons to teach a critic.

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
from reference.agentic.play import Budget, judged, play
from reference.ending import exit_code, say
from reference.generate.choose import choose
from reference.generate.generator import Generator
from reference.generate.request import Sampling
from reference.rl.critique.ranking import Rubric, rubrics
from reference.rl.critique.verified import Outcome, outcomes_of, rows
from reference.rl.gym.family import Turns, family, item, names
from reference.rl.tasks import Task, TasksSpec, tasks_of
from twin.errors import Problem, UsageError

ORACLE = "oracle"
Group = tuple[str, list[tuple[str, bool]]]
"""A question, and answers with whether they are right."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tasks are answered, by whom, how often."""

    family: str
    levels: tuple[int, ...]
    count: int
    seed: int
    policy: str
    answers: int


def bootstrapped(wanted: Wanted) -> list[Outcome]:
    """Comparisons with a known outcome. Raises UsageError TW654 where no task has both a right and
    a wrong answer, or its answers are calls of tools, and what generators and families raise."""
    first = item(wanted.family, min(wanted.levels, default=1), wanted.seed)
    if first.environment.opening.tools:
        message = (
            f"what answers of `{wanted.family}` are worth lies in their calls, not their words"
        )
        raise UsageError([Problem("TW654", "--tasks", message, "take a family without tools")])
    groups = _oracle(wanted) if wanted.policy == ORACLE else _played(wanted, choose(wanted.policy))
    found = outcomes_of(groups, wanted.count * wanted.answers, wanted.seed)
    if not found:
        message = f"`{wanted.policy}` has no task with both a right and a wrong answer"
        fix = "easier or harder `--levels`, more `--answers`, or `--policy oracle`"
        raise UsageError([Problem("TW654", "--policy", message, fix)])
    return found


def write(file: Path, found: Sequence[Outcome], rubrics: Sequence[Rubric]) -> int:
    """The comparisons in both orders, a dialogue per line; how many. Raises UsageError TW655."""
    lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in rows(found, rubrics)]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        message = f"`{file}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW655", "--out", message)]) from None
    return len(lines)


def _oracle(wanted: Wanted) -> list[Group]:
    levels = wanted.levels or tuple(range(1, len(family(wanted.family).levels) + 1))
    found: list[Group] = []
    for at in range(wanted.count):
        made = item(wanted.family, levels[at % len(levels)], wanted.seed * 1_000_000 + at)
        solution = _last(made.solve())
        other = item(wanted.family, levels[at % len(levels)], wanted.seed * 1_000_000 - at - 1)
        tried = [other.solve(), *(turns for turns in made.hacks().values() if _last(turns).strip())]
        # Judged rather than believed: a trick that passes would teach the critic wrong.
        wrong = [turns for turns in tried if not judged(made.environment, turns).success]
        drawn("bootstrap", wanted.family, wanted.seed, at).shuffle(wrong)
        answers = [(_last(turns), False) for turns in wrong[: wanted.answers]]
        question = made.environment.opening.messages[-1].content
        found.append((question, [(solution, True)] * len(answers) + answers))
    return found


def _played(wanted: Wanted, policy: Generator) -> list[Group]:
    spec = TasksSpec(
        source=wanted.family, count=wanted.count, seed=wanted.seed, levels=wanted.levels
    )
    return [_answered(one, policy, wanted) for one in tasks_of([spec]).values()]


def _answered(task: Task, policy: Generator, wanted: Wanted) -> Group:
    answers: list[tuple[str, bool]] = []
    for at in range(wanted.answers):
        sampling = Sampling(temperature=1.0, max_tokens=128, seed=wanted.seed + at)
        found = play(task.environment, policy, Budget(steps=16, sampling=sampling))
        answers.append((found.dialog.messages[-1].content, found.verdict.success))
    return task.environment.opening.messages[-1].content, answers


def _last(turns: Turns) -> str:
    return turns[-1].text if turns else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _asked(_parser().parse_args(arguments)))


def _asked(words: argparse.Namespace) -> int:
    chosen = [one for file in words.rubrics.split(",") for one in rubrics(file)]
    wanted = Wanted(words.tasks, words.levels, words.count, words.seed, words.policy, words.answers)
    found = bootstrapped(wanted)
    count = write(Path(words.out), found, chosen)
    say(f"{len(found)} comparisons, {count} dialogues in both orders: `{words.out}`")
    if words.json:
        facts = {"version": 1, "comparisons": len(found), "dialogues": count, "file": words.out}
        sys.stdout.write(json.dumps(facts) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.rl.critique",
        description="Write comparisons whose outcome a verifier knows, for `python -m "
        "reference.sft`.",
    )
    parser.add_argument("--tasks", required=True, choices=names(), help="a family of the gym")
    parser.add_argument("--levels", type=_levels, default=(), help="such as 1,2; absent: all")
    parser.add_argument("--count", type=_count, default=64, help="tasks")
    parser.add_argument("--seed", type=int, default=0, help="of which tasks they are")
    parser.add_argument(
        "--policy",
        default="oracle",
        help="who answers: `oracle`, a run's folder, or a server's address",
    )
    parser.add_argument("--answers", type=_count, default=4, help="of each task")
    parser.add_argument("--rubrics", default="core,prescriptive", help="files of rubrics")
    parser.add_argument("--out", required=True, metavar="FILE", help="JSONL of dialogues")
    parser.add_argument("--json", action="store_true", help="what was written, as JSON on stdout")
    return parser


def _levels(text: str) -> tuple[int, ...]:
    return tuple(_count(one) for one in text.split(","))


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"`{text}` is not 1 to 1,000,000")
    return number


if __name__ == "__main__":
    sys.exit(main())
