"""Train a model: `python -m reference.train CONFIG [--set a.b=value ...] [--resume | --fresh]`.

CONFIG is a file or the name of a preset. The loop is `reference.trainer.loop`. Under `torchrun` the
ranks of the run share the work as the section `parallel` says.

Exit codes: 0 done, 1 a bug, 2 usage, 3 invalid configuration, 5 the loss is not finite, 6 another
rank is gone, 130 and 143 ended by SIGINT and SIGTERM, with a checkpoint.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reference.config import PRESETS, RunSpec, find_config, load_run, presets
from reference.ending import (
    Stop,
    ending_on_signals,
    existing_of,
    refusal_of,
    run_parser,
    say,
    terminal_bar,
)
from reference.evaluate import run as task_evaluation
from reference.metrics import StepMetrics
from reference.parallel.world import LOST, environment, is_lost, left, lost
from reference.trainer import loop
from reference.trainer.loop import Result
from reference.trainer.settings import Existing
from reference.trainer.stages import stages_of


@dataclass(frozen=True, slots=True)
class Program:
    """A command that trains, and how it reads its configuration."""

    name: str
    summary: str
    presets: Path
    """The folder of its presets."""
    load: Callable[[str, Sequence[str]], RunSpec]
    """The run of a configuration under overrides."""
    outputs: str
    """The parent folder of runs that name no output."""


TRAIN: Final = Program(
    "python -m reference.train", "Train a model.", PRESETS, load_run, "runs/train"
)
DIVERGED = 5


def train(
    run: RunSpec,
    *,
    progress: Callable[[StepMetrics], None] | None = None,
    tell: Callable[[str], None] | None = None,
    existing: Existing = "refuse",
    stop: Stop | None = None,
) -> Result:
    """`reference.trainer.loop.train`, with the tasks of `reference.evaluate` between steps."""
    return loop.train(
        run, task_evaluation, progress=progress, tell=tell, existing=existing, stop=stop
    )


def main(arguments: Sequence[str] | None = None, program: Program = TRAIN) -> int:
    """The command, or another program that trains; returns its exit code."""
    try:
        parser = run_parser(program.name, program.summary, presets(program.presets))
        return _command(parser.parse_args(arguments), program)
    except SystemExit as end:  # argparse's, after --help or a wrong option
        return end.code if isinstance(end.code, int) else 1
    except Exception as error:  # noqa: BLE001  the last stop: what is left is our bug
        if (refused := refusal_of(error)) is not None:
            if refused is not error or environment()[0] == 0:  # all ranks raise our own errors
                say(str(refused))
            return left(refused.exit_code)
        if is_lost(error):
            say(lost(error))
            return left(LOST)
        traceback.print_exc()
        return left(1)


def _command(words: argparse.Namespace, program: Program) -> int:
    run = program.load(words.config, words.set)
    if run.train.output is None:
        output = f"{program.outputs}/{find_config(words.config, program.presets).stem}"
        run = program.load(words.config, [*words.set, f"train.output={output}"])
    behind = "loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} tokens/s"
    with ending_on_signals() as stop, terminal_bar("{task.fields[stage]}", behind) as bar:
        progress = None if bar is None else _shown(bar, stages_of(run)[-1].end)
        existing = existing_of(words)
        result = train(run, progress=progress, tell=say, existing=existing, stop=stop)
    if result.ended == "diverged":
        return DIVERGED
    if result.ended == "interrupted":
        say(f"interrupted after step {result.step}, with a checkpoint; `--resume` goes on")
        return stop.exit_code
    say(f"done after step {result.step}; metrics and checkpoints are in `{run.train.output}`")
    return 0


def _shown(bar: Any, steps: int) -> Callable[[StepMetrics], None]:
    task = bar.add_task("", total=steps, stage="start", loss=float("nan"), speed=0.0)

    def show(step: StepMetrics) -> None:
        facts = {"stage": step.stage, "loss": step.loss, "speed": step.tokens_per_s}
        bar.update(task, completed=step.step, **facts)

    return show


if __name__ == "__main__":
    sys.exit(main())
