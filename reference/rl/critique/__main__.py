"""`python -m reference.rl.critique --tasks FAMILY --out FILE`: comparisons to teach a critic.

Exit codes: 0 written, 1 a bug, 2 usage, 3 invalid configuration.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from reference.ending import exit_code, say
from reference.rl.critique.bootstrap import Wanted, bootstrapped, write
from reference.rl.critique.rubric import rubrics
from reference.rl.gym.family import names


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
