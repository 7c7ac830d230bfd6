"""Reinforcement learning: `python -m reference.rl CONFIG [--set a.b=value ...] [--resume|--fresh]`.

With `--measure FILE` it writes how hard the tasks are for the first weights, and learns nothing.
CONFIG is a file or the name of a preset. Exit codes: 0 done, 1 a bug, 2 usage, 3 invalid
configuration, 5 diverged, 130 and 143 ended by SIGINT and SIGTERM, with a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from reference.ending import Stop, ending_on_signals, exit_code, say
from reference.rl.log import Iteration
from reference.rl.run import Result, Watch, document, learn_from, measure, opened_session
from reference.rl.spec import RlSpec, find, load_rl, named
from reference.train import DIVERGED
from reference.trainer.folder import Existing
from twin.errors import Problem, UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _asked(_parser().parse_args(arguments)))


def _asked(words: argparse.Namespace) -> int:
    if words.measure is not None:
        return _measure(load_rl(words.config, words.set), Path(words.measure))
    existing: Existing = "resume" if words.resume else "fresh" if words.fresh else "refuse"
    return _command(_spec(words.config, words.set), existing, as_json=words.json)


def _spec(config: str, overrides: Sequence[str]) -> RlSpec:
    spec = load_rl(config, overrides)
    if spec.train.output is None:
        output = f"runs/rl/{find(config).stem}"
        spec = load_rl(config, [*overrides, f"train.output={output}"])
    return spec


def _command(spec: RlSpec, existing: Existing, *, as_json: bool) -> int:
    with ending_on_signals() as stop, progress_bar(spec.iterations) as progress:
        result = learn_from(spec, Watch(progress, say, stop), existing)
    if as_json:
        sys.stdout.write(json.dumps(_document(result)) + "\n")
    return _said(spec, result, stop)


def _measure(spec: RlSpec, file: Path) -> int:
    """How hard the tasks are; the run's folder is not touched."""
    train = spec.train.model_copy(update={"output": None})
    with opened_session(spec.model_copy(update={"train": train}), Watch(tell=say), "refuse") as one:
        found = document(measure(one), one.tasks)
    try:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        message = f"`{file}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW648", "--measure", message)]) from None
    shares = [task["pass_at"] for task in found["tasks"].values()]
    first, last = (sum(one[at] for one in shares) / len(shares) for at in (0, -1))
    say(f"{len(shares)} tasks: pass@1 {first:.3f}, pass@{len(shares[0])} {last:.3f}; `{file}`")
    return 0


def _said(spec: RlSpec, result: Result, stop: Stop) -> int:
    done = len(result.iterations)
    if result.ended == "diverged":
        say(f"iteration {done + 1} diverged: logits or a loss are no numbers any more")
        return DIVERGED
    if result.ended == "interrupted":
        say(f"interrupted in iteration {done + 1}, with a checkpoint; `--resume` goes on")
        return stop.exit_code
    say(f"done after {done} iterations; metrics and checkpoints are in `{spec.train.output}`")
    return 0


def _document(result: Result) -> dict[str, object]:
    iterations = [asdict(one) for one in result.iterations]
    return {"version": 1, "ended": result.ended, "step": result.step, "iterations": iterations}


@contextmanager
def progress_bar(iterations: int) -> Iterator[Callable[[Iteration], None]]:
    """What to call with every iteration: a bar on a terminal, a line elsewhere."""
    from rich.console import Console  # noqa: PLC0415  only a command that trains needs rich
    from rich.progress import (  # noqa: PLC0415  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda one: say(line_of(one))
        return
    told = TextColumn("{task.fields[told]}")
    columns = (BarColumn(), MofNCompleteColumn(), told, TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=iterations, told="")
        yield lambda one: bar.update(task, completed=one.iteration, told=line_of(one))


def line_of(one: Iteration) -> str:
    """An iteration for people."""
    parts = [f"iteration {one.iteration}"]
    known = (("reward", one.reward), ("success", one.success), ("tokens", one.length))
    parts += [f"{name} {value:.3f}" for name, value in known if value is not None]
    parts.append(f"{one.written / max(one.phases.get('rollout', 0), 1e-9):,.0f} tokens/s")
    return "  ".join(parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.rl", description="Teach a model by what comes of its answers."
    )
    shown = f"a file, or one of the presets: {', '.join(named())}"
    parser.add_argument("config", metavar="CONFIG", help=shown)
    parser.add_argument(
        "--set", metavar="A.B=VALUE", action="append", default=[], help="override one field"
    )
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--resume", action="store_true", help="go on with the folder's run, if any")
    held.add_argument("--fresh", action="store_true", help="delete the folder's run, and begin")
    parser.add_argument(
        "--measure", metavar="FILE", help="write how hard the tasks are now, and learn nothing"
    )
    parser.add_argument("--json", action="store_true", help="all iterations as JSON on stdout")
    return parser
