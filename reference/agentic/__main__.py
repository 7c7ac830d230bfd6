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
from reference.config import find_config, presets
from reference.ending import answer, existing_of, exit_code, run_parser, say, terminal_bar
from twin.loading.load import load_config

PRESETS: Final = Path(__file__).with_name("presets")
_STOPPED: Final = "stopped; finished tasks are kept, and `--resume` continues"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return exit_code(lambda: _command(arguments), _STOPPED)


def _command(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    path = find_config(options.config or "synthesis", PRESETS)
    spec = load_config(SynthesisSpec, path, options.set)
    return _replay(options, spec) if options.replay else _synthesise(options, spec)


def _synthesise(options: argparse.Namespace, spec: SynthesisSpec) -> int:
    begin = time.monotonic()
    with terminal_bar(behind="kept of {task.fields[tasks]:,} tasks") as bar:
        shown = bar.add_task("", total=spec.kept, tasks=0) if bar else None

        def tell(tasks: int, kept: int, wanted: int) -> None:
            del wanted
            if bar:
                bar.update(shown, completed=kept, tasks=tasks)

        report = synthesise(spec, existing_of(options), tell)
    kept, tried = report["kept"]["trajectories"], report["tasks"]["tried"]
    say(f"{kept:,}/{spec.kept:,} kept of {tried:,} tasks, {time.monotonic() - begin:.1f} s")
    answer(report, [*summary_of(report), f"folder: {spec.output}"], as_json=options.json)
    return 0


def _replay(options: argparse.Namespace, spec: SynthesisSpec) -> int:
    report = replay_file(spec, Path(options.replay))
    lines = [
        f"replayed: {report['trajectories']:,} trajectories, {report['calls']:,} calls",
        f"different: {len(report['different'])}",
        *(f"  {fault}" for fault in report["different"][:10]),
    ]
    answer(report, lines, as_json=options.json)
    return 2 if report["different"] else 0


def _parser() -> argparse.ArgumentParser:
    summary = "Write dialogues with simulated tools."
    parser = run_parser("python -m reference.agentic", summary, presets(PRESETS), optional=True)
    parser.add_argument("--replay", metavar="FILE", help="repeat kept trajectories and compare")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
