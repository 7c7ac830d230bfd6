"""`python -m reference.rl.gym [FAMILY ...]`: what families ask, level by level; with `--out FILE`
their oracles' dialogues, as a start for `python -m reference.sft`.

A model that has never seen a form of answer earns nothing to learn from; some dialogues show it.
Exit codes: 0 printed or written, 1 a bug, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reference.agentic.environment import follow
from reference.dialog import dialog_json
from reference.ending import exit_code, say, write_file
from reference.rl.gym.environments import family, item, level_numbers, names


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def dialogues(name: str, levels: Sequence[int], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Dialogues of a family's oracle, levels in turn, as lines that fine-tuning reads."""
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


def _command(words: argparse.Namespace) -> int:
    chosen = words.families or list(names())
    if words.out is None:
        for name in chosen:
            lines = [f"{at:3}  {level}" for at, level in enumerate(family(name).levels, 1)]
            sys.stdout.write("\n".join([f"{name}: {family(name).about}", *lines, ""]))
        return 0
    lines: list[str] = []
    for name in chosen:
        levels = words.levels or range(1, len(family(name).levels) + 1)
        rows = dialogues(name, levels, words.count, words.seed)
        lines += [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    write_file(Path(words.out), "".join(lines), "TW655", "--out")
    say(f"{len(lines)} dialogues: `{words.out}`")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.rl.gym", description="Families of verifiable tasks."
    )
    parser.add_argument("families", metavar="FAMILY", nargs="*", help="default: all")
    parser.add_argument("--levels", type=level_numbers, default=(), help="such as 1,2 [all]")
    parser.add_argument("--count", type=int, default=100, help="dialogues of each family")
    parser.add_argument("--seed", type=int, default=9, help="seed of the tasks")
    parser.add_argument("--out", metavar="FILE", help="write dialogues to this JSONL")
    return parser


if __name__ == "__main__":
    sys.exit(main())
