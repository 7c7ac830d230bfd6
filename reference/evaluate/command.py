"""`python -m reference.evaluate CONFIG [--set a.b=value ...] [--resume | --fresh]`: judge a model.

CONFIG is a file or the name of a preset. `--show TASK N` prints a case of a finished evaluation as
it was asked and answered, `--compare A B` what two evaluations' folders differ by.

Exit codes: 0 done, 1 a bug, 2 usage, 3 invalid configuration, 130 and 143 ended by SIGINT and
SIGTERM; `--resume` goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from reference.ending import exit_code, say
from reference.evaluate.compare import compare, shown
from reference.evaluate.journal import read_document, read_rounds
from reference.evaluate.result import text_of
from reference.evaluate.run import Progress, evaluate
from reference.evaluate.spec import EvaluateSpec
from reference.evaluate.table import table
from reference.evaluate.task import names
from reference.trainer.folder import Existing
from reference.trainer.signals import ending_on_signals
from twin.errors import Problem, UsageError
from twin.loading.config import load_config
from twin.loading.suggest import hint

PRESETS: Final = Path(__file__).with_name("presets")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def _command(words: argparse.Namespace) -> int:
    if words.compare:
        found = compare(*map(Path, words.compare))
        _answer(text_of(found) if words.json else shown(found))
        return 0
    if words.config is None:
        message = "name a configuration, or `--compare A B`"
        raise UsageError([Problem("TW589", "", message, f"presets: {', '.join(presets())}")])
    spec = load_spec(words.config, words.set)
    if words.show:
        _answer(case_of(Path(str(spec.output)), *words.show))
        return 0
    return _evaluate(spec, words)


def _evaluate(spec: EvaluateSpec, words: argparse.Namespace) -> int:
    existing: Existing = "resume" if words.resume else "fresh" if words.fresh else "refuse"
    threads = torch.get_num_threads()
    torch.set_num_threads(spec.threads)
    began = time.monotonic()
    try:
        with ending_on_signals() as stop, progress_bar() as progress:
            found = evaluate(spec, existing=existing, progress=progress, stop=stop)
    finally:
        torch.set_num_threads(threads)
    if found is None:
        say("interrupted; what was answered stays, and `--resume` goes on")
        return stop.exit_code
    _answer(text_of(found) if words.json else table(found))
    say(f"done in {time.monotonic() - began:.1f} s; all of it is in `{spec.output}`")
    return 0


def load_spec(config: str, overrides: Sequence[str] = ()) -> EvaluateSpec:
    """The evaluation of a file, or of a preset by its name. Raises UsageError TW589 where there is
    none, and what `load_config` does."""
    path = Path(config)
    if not path.is_file():
        path = PRESETS / f"{config}.yaml"
    if not path.is_file():
        fix = hint(config, presets(), "give a file, or one of the presets")
        message = f"there is no evaluation `{config}`"
        raise UsageError([Problem("TW589", "", message, fix)])
    spec = load_config(EvaluateSpec, path, overrides)
    if spec.output is not None:
        return spec
    return load_config(EvaluateSpec, path, [*overrides, f"output=runs/evaluate/{path.stem}"])


def presets() -> list[str]:
    """The names of the presets."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def case_of(folder: Path, task: str, which: str) -> str:
    """A case of an evaluation as people read it, by its number from 1 or its id. Raises UsageError
    TW588 where there is none."""
    read_document(folder, "evaluation.json")
    rows = [row for part in read_rounds(folder, task) for row in part]
    found = [row for at, row in enumerate(rows, 1) if which in (str(at), row["id"])]
    if not found:
        message = f"`{folder}` has no case `{which}` of `{task}`; it has {len(rows)}"
        raise UsageError([Problem("TW588", "--show", message)])
    return json.dumps(found[0], indent=1, ensure_ascii=False) + "\n"


def _answer(text: str) -> None:
    sys.stdout.write(text)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A bar on stderr, of the task that is asked; None where stderr is no terminal."""
    from rich.console import Console  # noqa: PLC0415  only the command needs rich
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415
    from rich.progress import TimeRemainingColumn as Left  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns: Any = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Left())
    with Progress(*columns, console=console) as bar:
        bars: dict[str, Any] = {}

        def show(task: str, done: int, cases: int) -> None:
            if task not in bars:
                bars[task] = bar.add_task(task, total=cases)
            bar.update(bars[task], completed=done)

        yield show


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.evaluate",
        description="Judge a model by tasks.",
        epilog=f"built-in tasks: {', '.join(names())}",
    )
    named = f"a file, or one of the presets: {', '.join(presets())}"
    parser.add_argument("config", metavar="CONFIG", nargs="?", help=named)
    parser.add_argument(
        "--set", metavar="A.B=VALUE", action="append", default=[], help="override one field"
    )
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--resume", action="store_true", help="go on with the folder's evaluation")
    held.add_argument("--fresh", action="store_true", help="forget it, and begin")
    parser.add_argument("--json", action="store_true", help="the document instead of a table")
    parser.add_argument(
        "--show", nargs=2, metavar=("TASK", "N"), help="a case of the folder, by number or id"
    )
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="what two evaluations' folders differ by"
    )
    return parser
