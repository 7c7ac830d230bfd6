"""What the command line asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reference.config import RunSpec, find_config, load_run, presets
from reference.ending import existing_of, run_parser
from reference.trainer.folder import Existing


@dataclass(frozen=True, slots=True)
class Program:
    """A command that trains, and how it reads what it is given."""

    name: str
    summary: str
    presets: Callable[[], Sequence[str]]
    find: Callable[[str], Path]
    """The file that a path or the name of a preset means."""
    load: Callable[[str, Sequence[str]], RunSpec]
    """The run of a configuration under overrides."""
    outputs: str
    """The folder of folders of runs that name none."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A run, and what to do with one that its folder holds already."""

    run: RunSpec
    existing: Existing


TRAIN: Final = Program(
    "python -m reference.train", "Train a model.", presets, find_config, load_run, "runs/train"
)


def parse(arguments: Sequence[str] | None, program: Program = TRAIN) -> Asked:
    """The arguments, those of the process if None. Raises what the program's `load` does; a wrong
    option ends the process with exit code 2, as argparse does."""
    words = run_parser(program.name, program.summary, program.presets()).parse_args(arguments)
    run = program.load(words.config, words.set)
    if run.train.output is None:
        output = f"{program.outputs}/{program.find(words.config).stem}"
        run = program.load(words.config, [*words.set, f"train.output={output}"])
    return Asked(run, existing_of(words))
