"""`python -m reference.rl.gym [FAMILY ...]`: what families ask, level by level; with `--out FILE`
their oracles' dialogues, for `python -m reference.sft` to begin with.

A model that has never seen a form of answer earns nothing to learn from; some dialogues show it.
Exit codes: 0 told or written, 1 a bug, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reference.agentic.play import follow
from reference.dialog import dialog_json
from reference.ending import exit_code
from reference.rl.gym.family import family, item, names
from twin.errors import Problem, UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _asked(_parser().parse_args(arguments)))


def dialogues(name: str, levels: Sequence[int], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """So many dialogues of a family's oracle, levels in turn, as lines that fine-tuning reads."""
    for at in range(count):
        level = levels[at % len(levels)]
        made = item(name, level, seed * 1_000_000 + at // len(levels))
        _, dialog = follow(made.environment, made.solve())
        split = "held_out" if at % 10 == 9 else "train"
        yield {
            "id": f"{name}-{level}-{seed}-{at}",
            **dialog_json(dialog),
            "provenance": {"family": name, "level": level, "split": split},
        }


def _asked(words: argparse.Namespace) -> int:
    chosen = words.families or list(names())
    if words.out is None:
        _tell(chosen)
        return 0
    lines: list[str] = []
    for name in chosen:
        levels = words.levels or range(1, len(family(name).levels) + 1)
        rows = dialogues(name, levels, words.count, words.seed)
        lines += [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    try:
        Path(words.out).parent.mkdir(parents=True, exist_ok=True)
        Path(words.out).write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        message = f"`{words.out}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW655", "--out", message)]) from None
    sys.stderr.write(f"{len(lines)} dialogues: `{words.out}`\n")
    return 0


def _tell(chosen: Sequence[str]) -> None:
    for name in chosen:
        found = family(name)
        sys.stdout.write(f"{name}: {found.about}\n")
        for level, about in enumerate(found.levels, 1):
            sys.stdout.write(f"  {level}  {about}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.rl.gym", description="Families of verifiable tasks."
    )
    parser.add_argument("families", metavar="FAMILY", nargs="*", help="absent: all")
    parser.add_argument("--levels", type=_levels, default=(), help="such as 1,2; absent: all")
    parser.add_argument("--count", type=int, default=100, help="dialogues of each family")
    parser.add_argument("--seed", type=int, default=9, help="of other tasks than a run's")
    parser.add_argument("--out", metavar="FILE", help="JSONL of dialogues")
    return parser


def _levels(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
