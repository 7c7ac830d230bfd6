"""Dialogues with tools: `python -m reference.agentic [CONFIG] [--set a.b=value ...] [--resume]`.

CONFIG is a file or a preset (`synthesis`, `nano`). `--replay FILE` repeats the calls of kept
trajectories in fresh worlds and compares every result. Progress goes to standard error.

Exit codes: 0 done, 1 a bug, 2 wrong usage or a replay that differs, 3 invalid configuration.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reference.agentic.report import summary_of
from reference.agentic.run import replay_file, synthesise
from reference.agentic.spec import SynthesisSpec
from reference.ending import answer, exit_code, say
from twin.errors import Problem, UsageError
from twin.loading.config import load_config

PRESETS: Final = Path(__file__).with_name("presets")
_BAR: Final = 30

_STOPPED = "stopped; finished tasks are kept, and `--resume` continues"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return exit_code(lambda: _command(arguments), _STOPPED)


def _command(arguments: Sequence[str] | None) -> int:
    words = _parser().parse_args(arguments)
    spec = load_config(SynthesisSpec, _path(words.config), words.set)
    return _replay(words, spec) if words.replay else _make(words, spec)


def _make(words: argparse.Namespace, spec: SynthesisSpec) -> int:
    existing = "resume" if words.resume else "fresh" if words.fresh else "refuse"
    begun = time.monotonic()
    shown = [0.0]

    def tell(tasks: int, kept: int, wanted: int) -> None:
        now = time.monotonic()
        if now - shown[0] < 0.5 and kept < wanted:
            return
        shown[0] = now
        full = _BAR * kept // max(1, wanted)
        bar = "#" * full + "." * (_BAR - full)
        end = "\n" if kept >= wanted else ""
        start = "\r" if sys.stderr.isatty() else ""
        if start or end:
            sys.stderr.write(f"{start}[{bar}] {kept:,}/{wanted:,} kept of {tasks:,} tasks{end}")
            sys.stderr.flush()

    report = synthesise(spec, existing, tell)
    lines = [*summary_of(report), f"folder: {spec.output}"]
    say(f"{time.monotonic() - begun:.1f} s")
    answer(report, lines, as_json=words.json)
    return 0


def _replay(words: argparse.Namespace, spec: SynthesisSpec) -> int:
    report = replay_file(spec, Path(words.replay))
    lines = [
        f"replayed: {report['trajectories']:,} trajectories, {report['calls']:,} calls",
        f"different: {len(report['different'])}",
        *(f"  {fault}" for fault in report["different"][:10]),
    ]
    answer(report, lines, as_json=words.json)
    return 2 if report["different"] else 0


def _path(name: str) -> Path:
    preset = PRESETS / f"{name}.yaml"
    if preset.is_file():
        return preset
    path = Path(name)
    if not path.is_file():
        known = ", ".join(sorted(path.stem for path in PRESETS.glob("*.yaml")))
        message = f"there is no configuration `{name}`"
        raise UsageError([Problem("TW230", "", message, f"give a YAML file, or one of: {known}")])
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.agentic", description="Dialogues with simulated tools."
    )
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        default="synthesis",
        help="YAML file or preset",
    )
    parser.add_argument(
        "--set", metavar="A.B=VALUE", action="append", default=[], help="set a field"
    )
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--resume", action="store_true", help="continue the folder's run")
    held.add_argument("--fresh", action="store_true", help="delete the folder's run and start")
    held.add_argument("--replay", metavar="FILE", help="repeat kept trajectories and compare")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
