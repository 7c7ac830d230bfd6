"""Untrusted code in the sandbox.

`python -m reference.sandbox --probe` prints the guarantees of this machine; `python -m
reference.sandbox FILE.py` runs a Python file and prints the outcome as JSON.

Exit codes: 0 for the probe or a run with exit code 0; 4 for any other run; 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twin.errors import Problem, TwinError, UsageError

NOT_OK = 4


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(words)
    from reference.sandbox.run import best  # noqa: PLC0415  `--help` goes without

    try:
        if options.probe:
            chosen = best()
            facts = {"isolation": chosen.kind, "guarantees": asdict(chosen.guarantees)}
            shown = json.dumps({"version": 1, **facts}, indent=1)
            _print(shown if options.json else _probe_text(chosen))
            return 0
        return _run(options.file)
    except TwinError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _run(file: Path | None) -> int:
    from reference.sandbox.job import python_text  # noqa: PLC0415  as above
    from reference.sandbox.run import run  # noqa: PLC0415  as above

    if file is None:
        fix = "name a Python file, or `--probe`"
        raise UsageError([Problem("TW544", "FILE", "no file to run", fix)])
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be read: {error}"
        raise UsageError([Problem("TW544", "FILE", message, "name a Python file")]) from None
    outcome = run(python_text(text))
    shown = {
        "version": 1,
        "ended": outcome.ended,
        "code": outcome.code,
        "signal": outcome.signal,
        "stdout": outcome.stdout.text,
        "stderr": outcome.stderr.text,
        "used": asdict(outcome.used),
    }
    _print(json.dumps(shown, indent=1))
    return 0 if outcome.ok else NOT_OK


def _probe_text(chosen: Any) -> str:
    guarantees = asdict(chosen.guarantees)
    wide = max(map(len, guarantees))
    rows = [f"{name:{wide}}  {by or 'NOT GUARANTEED'}" for name, by in guarantees.items()]
    return "\n".join([f"{'isolation':{wide}}  {chosen.kind}", *rows])


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.sandbox",
        description="Run untrusted code where it can reach nothing.",
    )
    parser.add_argument("file", nargs="?", type=Path, help="Python text to run")
    parser.add_argument("--probe", action="store_true", help="print the guarantees of this machine")
    parser.add_argument("--json", action="store_true", help="print the probe as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
