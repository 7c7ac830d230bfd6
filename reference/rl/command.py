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

from reference.ending import (
    Stop,
    ending_on_signals,
    existing_of,
    exit_code,
    run_parser,
    say,
    terminal_bar,
    write_file,
)
from reference.rl.prompts import document
from reference.rl.run import RlResult, RunObserver, learn_from, measure, opened_session
from reference.rl.session import IterationMetrics
from reference.rl.spec import RlSpec, find, load_rl, named
from reference.train import DIVERGED


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def _command(words: argparse.Namespace) -> int:
    spec = load_rl(words.config, words.set)
    if words.measure is not None:
        return _measure(spec, Path(words.measure))
    if spec.train.output is None:
        output = f"runs/rl/{find(words.config).stem}"
        spec = load_rl(words.config, [*words.set, f"train.output={output}"])
    with ending_on_signals() as stop, progress_bar(spec.iterations) as progress:
        result = learn_from(spec, RunObserver(progress, say, stop), existing_of(words))
    if words.json:
        iterations = [asdict(metrics) for metrics in result.iterations]
        facts = {"version": 1, "ended": result.ended, "step": result.step, "iterations": iterations}
        sys.stdout.write(json.dumps(facts) + "\n")
    return _ended(spec, result, stop)


def _measure(spec: RlSpec, file: Path) -> int:
    """Write how hard the tasks are; the run's folder is not touched."""
    train = spec.train.model_copy(update={"output": None})
    apart = spec.model_copy(update={"train": train})
    with opened_session(apart, RunObserver(tell=say), "refuse") as session:
        facts = document(measure(session), session.tasks)
    write_file(file, json.dumps(facts, indent=1) + "\n", "TW648", "--measure")
    shares = [task["pass_at"] for task in facts["tasks"].values()]
    first, last = (sum(share[at] for share in shares) / len(shares) for at in (0, -1))
    say(f"{len(shares)} tasks: pass@1 {first:.3f}, pass@{len(shares[0])} {last:.3f}; `{file}`")
    return 0


def _ended(spec: RlSpec, result: RlResult, stop: Stop) -> int:
    done = len(result.iterations)
    if result.ended == "diverged":
        say(f"iteration {done + 1} diverged: logits or the loss are not finite")
        return DIVERGED
    if result.ended == "interrupted":
        say(f"interrupted in iteration {done + 1}, with a checkpoint; `--resume` continues")
        return stop.exit_code
    say(f"done after {done} iterations; metrics and checkpoints are in `{spec.train.output}`")
    return 0


@contextmanager
def progress_bar(iterations: int) -> Iterator[Callable[[IterationMetrics], None]]:
    """What to call with every iteration: a bar on a terminal, a line elsewhere."""
    with terminal_bar(behind="{task.fields[line]}") as bar:
        if bar is None:
            yield lambda metrics: say(line_of(metrics))
            return
        task = bar.add_task("", total=iterations, line="")
        yield lambda metrics: bar.update(task, completed=metrics.iteration, line=line_of(metrics))


def line_of(metrics: IterationMetrics) -> str:
    """An iteration for people."""
    known = {"reward": metrics.reward, "success": metrics.success, "tokens": metrics.length}
    parts = [f"{name} {value:.3f}" for name, value in known.items() if value is not None]
    speed = metrics.written / max(metrics.phases.get("rollout", 0), 1e-9)
    return "  ".join([f"iteration {metrics.iteration}", *parts, f"{speed:,.0f} tokens/s"])


def _parser() -> argparse.ArgumentParser:
    summary = "Train a model by the rewards of its responses."
    parser = run_parser("python -m reference.rl", summary, named())
    parser.add_argument(
        "--measure", metavar="FILE", help="write how hard the tasks are, and learn nothing"
    )
    parser.add_argument("--json", action="store_true", help="print all iterations as JSON")
    return parser
