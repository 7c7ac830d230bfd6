"""`python -m reference.shapes CONFIG --ranks N`: what a rank of so many sends, keeps and computes
in a step, without one of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from reference.ending import exit_code, make_folder, write_file
from twin.errors import Problem, UsageError


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _count(_parser().parse_args(words)))


def _count(options: argparse.Namespace) -> int:
    # torch takes more than a second to load: `--help` and misspelled options go without.
    if options.output is not None:
        make_folder(options.output, "TW364", "--output")
    from reference.config import load_run  # noqa: PLC0415  loads torch
    from reference.shapes.count import count, report  # noqa: PLC0415  loads torch, too

    run = load_run(options.config, options.set)
    ranks = _ranks(options, run.parallel.pipeline)
    made = report(run, options.ranks, [count(run, rank, options.ranks) for rank in ranks])
    text = json.dumps(made, indent=1) + "\n"
    if options.output is None:
        sys.stdout.write(text)
    else:
        write_file(options.output, text, "TW364", "--output")
    return 0


def _ranks(options: argparse.Namespace, stages: int) -> Sequence[int]:
    """Those that were named; or the first of each stage, of which all others do the same."""
    if options.stages is None:
        return options.rank or (0,)
    each = max(1, options.ranks // stages)
    if options.stages == "all":
        return range(0, options.ranks, each)
    try:
        return [int(stage) * each for stage in options.stages.split(",")]
    except ValueError:
        message = f"`{options.stages}` names no stages"
        fix = "write `all`, or numbers with commas between"
        raise UsageError([Problem("TW363", "--stages", message, fix)]) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.shapes",
        description="Runs one step of the trainer's code on one rank of many, without devices and "
        "without numbers, and writes what it counts: collectives, messages, bytes and FLOP.",
    )
    parser.add_argument("config", metavar="CONFIG", help="as for python -m reference.train")
    parser.add_argument("--ranks", type=int, required=True, help="of the whole run")
    parser.add_argument("--rank", type=int, action="append", help="to count; 0 (may be repeated)")
    parser.add_argument("--stages", help="the first rank of these stages: all, or 0,8,15")
    parser.add_argument(
        "--set", metavar="A.B=VALUE", action="append", default=[], help="override one field"
    )
    parser.add_argument("--output", type=Path, help="JSON file; standard output")
    return parser


if __name__ == "__main__":
    sys.exit(main())
