"""`python -m reference.evaluate CONFIG [--set a.b=value ...] [--resume | --fresh]`: evaluate a
model.

CONFIG is a file or the name of a preset. `--show TASK N` prints a case of a finished evaluation
with its prompt and answer, `--compare A B` the difference of two evaluations' folders.

Exit codes: 0 done, 1 a bug, 2 usage, 3 invalid configuration, 130 and 143 ended by SIGINT and
SIGTERM; `--resume` continues.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from reference.config import presets
from reference.ending import (
    ending_on_signals,
    existing_of,
    exit_code,
    run_parser,
    say,
    terminal_bar,
)
from reference.evaluate.journal import read_document, read_rows
from reference.evaluate.report import compare, comparison_table, table, text_of
from reference.evaluate.run import Progress, evaluate
from reference.evaluate.task import EvaluateSpec, names
from twin.errors import Problem, UsageError
from twin.loading.load import load_config
from twin.loading.tree import hint

PRESETS: Final = Path(__file__).with_name("presets")
preset_names = partial(presets, PRESETS)
"""The names of the presets."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def _command(words: argparse.Namespace) -> int:
    if words.compare:
        document = compare(*map(Path, words.compare))
        sys.stdout.write(text_of(document) if words.json else comparison_table(document))
        return 0
    if words.config is None:
        message = "name a configuration, or `--compare A B`"
        raise UsageError([Problem("TW589", "", message, f"presets: {', '.join(preset_names())}")])
    spec = load_spec(words.config, words.set)
    if words.show:
        sys.stdout.write(case_of(Path(str(spec.output)), *words.show))
        return 0
    return _evaluate(spec, words)


def _evaluate(spec: EvaluateSpec, words: argparse.Namespace) -> int:
    threads = torch.get_num_threads()
    torch.set_num_threads(spec.threads)
    began = time.monotonic()
    try:
        with ending_on_signals() as stop, progress_bar() as progress:
            document = evaluate(spec, existing=existing_of(words), progress=progress, stop=stop)
    finally:
        torch.set_num_threads(threads)
    if document is None:
        say("interrupted; answers so far are kept, and `--resume` continues")
        return stop.exit_code
    sys.stdout.write(text_of(document) if words.json else table(document))
    say(f"done in {time.monotonic() - began:.1f} s; all results are in `{spec.output}`")
    return 0


def load_spec(config: str, overrides: Sequence[str] = ()) -> EvaluateSpec:
    """The evaluation of a file, or of a preset by its name. Raises UsageError TW589 where there is
    none, and the errors of `load_config`."""
    path = Path(config)
    if not path.is_file():
        path = PRESETS / f"{config}.yaml"
    if not path.is_file():
        fix = hint(config, preset_names(), "give a file, or one of the presets")
        message = f"there is no evaluation `{config}`"
        raise UsageError([Problem("TW589", "", message, fix)])
    spec = load_config(EvaluateSpec, path, overrides)
    if spec.output is not None:
        return spec
    return load_config(EvaluateSpec, path, [*overrides, f"output=runs/evaluate/{path.stem}"])


def case_of(folder: Path, task: str, which: str) -> str:
    """A case of an evaluation as JSON, by its number from 1 or its id. Raises UsageError TW588
    where there is none."""
    read_document(folder, "evaluation.json")
    rows = read_rows(folder, task)
    chosen = [row for at, row in enumerate(rows, 1) if which in (str(at), row["id"])]
    if not chosen:
        message = f"`{folder}` has no case `{which}` of `{task}`; it has {len(rows)}"
        raise UsageError([Problem("TW588", "--show", message)])
    return json.dumps(chosen[0], indent=1, ensure_ascii=False) + "\n"


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A bar per task on stderr; None where stderr is no terminal."""
    with terminal_bar("{task.description}") as bar:
        bars: dict[str, Any] = {}

        def show(task: str, done: int, cases: int) -> None:
            if task not in bars:
                bars[task] = bar.add_task(task, total=cases)
            bar.update(bars[task], completed=done)

        yield None if bar is None else show


def _parser() -> argparse.ArgumentParser:
    parser = run_parser(
        "python -m reference.evaluate",
        "Evaluate a model by tasks.",
        preset_names(),
        epilog=f"built-in tasks: {', '.join(names())}",
        optional=True,
    )
    parser.add_argument("--json", action="store_true", help="print the document, not a table")
    parser.add_argument(
        "--show", nargs=2, metavar=("TASK", "N"), help="print a case by number or id"
    )
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="print the difference of two folders"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
