"""What the command line asks for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from reference.config import RunSpec, find_config, load_run, presets
from reference.trainer.folder import Existing


@dataclass(frozen=True, slots=True)
class Asked:
    """A run, and what to do with one that its folder holds already."""

    run: RunSpec
    existing: Existing


def parse(arguments: Sequence[str] | None) -> Asked:
    """The arguments, those of the process if None. Raises what `load_run` does; a wrong option ends
    the process with exit code 2, as argparse does."""
    words = _parser().parse_args(arguments)
    run = load_run(words.config, words.set)
    if run.train.output is None:
        output = f"runs/train/{find_config(words.config).stem}"
        run = load_run(words.config, [*words.set, f"train.output={output}"])
    return Asked(run, "resume" if words.resume else "fresh" if words.fresh else "refuse")


def say(text: str) -> None:
    """A message on stderr."""
    sys.stderr.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reference.train", description="Train a model.")
    named = f"a file, or one of the presets: {', '.join(presets())}"
    parser.add_argument("config", metavar="CONFIG", help=named)
    parser.add_argument(
        "--set", metavar="A.B=VALUE", action="append", default=[], help="override one field"
    )
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--resume", action="store_true", help="go on with the folder's run, if any")
    held.add_argument("--fresh", action="store_true", help="delete the folder's run, and begin")
    return parser
