"""A bar on stderr for whoever watches: steps, loss, speed, remaining time. No terminal, no bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reference.ending import terminal_bar
from reference.metrics import Step


@contextmanager
def progress_bar(steps: int) -> Iterator[Callable[[Step], None]]:
    """What to call with every step; nothing is shown where stderr is no terminal."""
    behind = "loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} tokens/s"
    with terminal_bar("{task.fields[stage]}", behind) as bar:
        if bar is None:
            yield _silent
            return
        task = bar.add_task("", total=steps, stage="start", loss=float("nan"), speed=0.0)

        def show(step: Step) -> None:
            bar.update(
                task,
                completed=step.step,
                stage=step.stage,
                loss=step.loss,
                speed=step.tokens_per_s,
            )

        yield show


def _silent(step: Step) -> None:
    del step
