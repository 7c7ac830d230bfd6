"""Train a model: `python -m reference.train CONFIG [--set a.b=value ...] [--resume | --fresh]`.

CONFIG is a file or the name of a preset. The loop is `reference.trainer.loop`. Under `torchrun` the
ranks of the run share the work as the section `parallel` says.

Exit codes: 0 done, 1 a bug, 2 usage, 3 invalid configuration, 5 the loss is not finite, 6 another
rank is gone, 130 and 143 ended by SIGINT and SIGTERM, with a checkpoint.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence

from reference.config import RunSpec
from reference.ending import say
from reference.evaluate import run as task_evaluation
from reference.metrics import Step
from reference.parallel.lost import LOST, is_lost, left, lost
from reference.parallel.world import environment
from reference.trainer import loop
from reference.trainer.command import TRAIN, Asked, Program, parse
from reference.trainer.folder import Existing
from reference.trainer.loop import Result
from reference.trainer.progress import progress_bar
from reference.trainer.signals import Stop, ending_on_signals
from reference.trainer.stages import stages_of
from twin.errors import TwinError

DIVERGED = 5


def train(
    run: RunSpec,
    *,
    progress: Callable[[Step], None] | None = None,
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
        return _command(parse(arguments, program))
    except SystemExit as end:  # argparse's, after --help or a wrong option
        return end.code if isinstance(end.code, int) else 1
    except TwinError as error:
        if environment()[0] == 0:
            say(str(error))
        return left(error.exit_code)
    except Exception as error:  # noqa: BLE001  the last stop: what is left is our bug
        if is_lost(error):
            say(lost(error))
            return left(LOST)
        traceback.print_exc()
        return left(1)


def _command(asked: Asked) -> int:
    run, steps = asked.run, stages_of(asked.run)[-1].end
    with ending_on_signals() as stop, progress_bar(steps) as progress:
        result = train(run, progress=progress, tell=say, existing=asked.existing, stop=stop)
    if result.ended == "diverged":
        return DIVERGED
    if result.ended == "interrupted":
        say(f"interrupted after step {result.step}, with a checkpoint; `--resume` goes on")
        return stop.exit_code
    say(f"done after step {result.step}; metrics and checkpoints are in `{run.train.output}`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
