"""The command line that every study has."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reference.studies.report import Report, save
from reference.studies.runs import Workplace
from twin.errors import Problem, TwinError, UsageError

Study = Callable[[bool, Workplace], Report]
"""What is found, quick or not."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says."""

    quick: bool
    output: Path
    place: Workplace


def main(study: Study, summary: str, arguments: Sequence[str] | None = None) -> int:
    """Conduct a study and write its report; the exit code: 0, or that of the error told on stderr,
    or 130 where it was interrupted."""
    try:
        asked = parse(summary, arguments)
        path, lacking = save(study(asked.quick, asked.place), asked.output)
    except TwinError as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say("stopped; runs that had ended are kept, and the same command goes on")
        return 130
    if lacking:
        say(f"no pictures: they need {lacking}; the same command draws them, and trains nothing")
    say(f"the report is in `{path}`")
    return 0


def parse(summary: str, arguments: Sequence[str] | None) -> Asked:
    """The arguments, those of the process if None. Raises UsageError where a number is none that
    can be meant; a wrong option ends the process with exit code 2, as argparse does."""
    words = _parser(summary).parse_args(arguments)
    cores = os.cpu_count() or 1
    jobs = cores if words.jobs is None else words.jobs
    if not 1 <= jobs <= 1024:
        message = f"{jobs} runs at once"
        raise UsageError(
            [Problem("TW282", "--jobs", message, f"1 to {cores}, this machine's cores")]
        )
    return Asked(words.quick, words.output, Workplace(words.cache, jobs, say))


def say(text: str) -> None:
    """A message on stderr."""
    sys.stderr.write(f"{text}\n")


def _parser(summary: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--quick", action="store_true", help="tiny runs: shows that it works")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/reports"), help="folder of the report"
    )
    parser.add_argument("--jobs", type=int, help="runs at once, one thread each; all cores")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("runs/studies"),
        help="folder of the outcomes of runs, which are not run again",
    )
    return parser
