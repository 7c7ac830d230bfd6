"""`python -m reference.weight_sync CONFIG --to LAYOUT`: weights of a run, cut as the trainer cuts
them, to inference ranks of another layout; every rank a process of its own. It says what each stage
took, and checks what arrived."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from reference.ending import exit_code, section_options
from reference.weight_sync.layout import SYNC_OPTIONS, SyncSpec


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, those of `reference.train`; 1 where weights differ."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def _command(words: argparse.Namespace) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # torch takes more than a second to load: `--help` and misspelled options go without.
    from reference.weight_sync.job import run_command  # noqa: PLC0415

    return run_command(words)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.weight_sync",
        description="Send a run's weights from the trainer's ranks to inference ranks.",
    )
    add = parser.add_argument
    config = "a run's folder, one of its checkpoints, or a configuration: its first weights"
    add("config", metavar="CONFIG", help=config)
    layout = (
        "lay out the inference ranks by replicas, pipeline, expert, tensor, names: `replicas=2`"
    )
    add("--to", metavar="LAYOUT", required=True, help=layout)
    add("--set", metavar="A.B=VALUE", action="append", default=[], help="override one field")
    add("--ranks", type=_count, help="set the trainer's ranks [pipeline x expert]")
    stages = ["two", "three", "both"]
    add("--stages", choices=stages, default="both", help="run these stages [both]")
    section_options(parser, SyncSpec, SYNC_OPTIONS)
    add("--repeat", type=_count, default=1, help="repeat each update so often [1]")
    add("--start", action="store_true", help="read the checkpoint together, once")
    add("--lose", type=int, metavar="N", help="kill receiver N during an update")
    add("--timeline", type=Path, metavar="FOLDER", help="write timelines of all ranks")
    add("--json", action="store_true", help="print the document as JSON")
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


if __name__ == "__main__":
    sys.exit(main())
