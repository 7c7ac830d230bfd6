"""A bar on stderr for whoever watches: steps, loss, speed, remaining time. No terminal, no bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reference.metrics import Step


@contextmanager
def progress_bar(steps: int) -> Iterator[Callable[[Step], None]]:
    """What to call with every step; nothing is shown where stderr is no terminal."""
    # Only a command that trains needs rich, and a library's caller brings its own bar.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _silent
        return
    columns = (
        TextColumn("{task.fields[stage]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
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
