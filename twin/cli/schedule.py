"""`twin schedule`: in which order should the stages run their passes?"""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

from twin.answers.executors import PoolChoice
from twin.answers.nearest import written
from twin.cli.answer import say_scope, search_progress, training
from twin.cli.output import DOES_NOT_FIT, Output, require_writable, write_text
from twin.cli.verbs import naming_options
from twin.explore.schedules.found import SECONDS, Found, Row, Told, find
from twin.explore.search.recommendation import Progress
from twin.explore.search.space import quantity
from twin.explore.sweep.points import points_folder
from twin.loading import load_any, resolve
from twin.reports.table import Table, duration, headed, percent, signed_bytes
from twin.schedules.custom import Custom, text_of


def schedule(  # noqa: PLR0913  one parameter per option of the command line
    *,
    scenario: str,
    sets: list[str],
    patience: str | None,
    path: Path | None,
    force: bool,
    jobs: int | None,
    no_cache: bool,
    output: Output,
) -> int | None:
    """In which order should the stages run their passes?"""

    with naming_options("schedule"):
        seconds = quantity("patience", patience, "seconds") if patience else SECONDS
    for file in () if path is None else (path, _beside(path)):
        require_writable(file, force=force)
    loaded = training(load_any(scenario, sets), "schedule")
    say_scope(loaded)
    with search_progress(output) as told, _stopped() as stop:

        def tell(doing: str, done: int, total: int) -> None:
            if told is not None:
                told(Progress(doing, done, total))

        found = find(
            loaded,
            pool=PoolChoice(jobs),
            folder=None if no_cache else points_folder(),
            seconds=seconds,
            told=Told(tell, stop.is_set),
        )
    output.answer(found.to_json(), found.sentences, [_table(found)])
    if path is not None and found.chosen is not None:
        _write(found, (scenario, sets), path, force=force, output=output)
    return 0 if found.chosen is not None else DOES_NOT_FIT


@contextmanager
def _stopped() -> Generator[Event]:
    """What the first Ctrl-C sets; the second ends the command."""
    stop = Event()
    if current_thread() is not main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(*_: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _beside(path: Path) -> Path:
    """The file of the order beside that of the plan."""
    return path.with_name(f"{path.stem}.schedule.yaml")


def _write(
    found: Found, asked: tuple[str, list[str]], path: Path, *, force: bool, output: Output
) -> None:
    """The plan with the best order, and the order in a file of its own."""
    values, own = found.overrides, found.chosen
    assert own is not None
    if isinstance(own.schedule, Custom):
        write_text(_beside(path), text_of(own.schedule), force=force)
        values |= {"parallel.schedule": str(_beside(path))}
        output.message(f"Wrote {_beside(path)}, which `parallel.schedule` may name.")
    scenario, sets = asked
    chosen = [f"{field}={written(value)}" for field, value in values.items()]
    write_text(path, resolve(load_any(scenario, [*sets, *chosen])), force=force)
    output.message(f"Wrote {path}. `twin run {path}` simulates it.")


def _table(found: Found) -> Table:
    """The known schedules and the found order."""
    heads = "schedule", "chunks", "step", "bubble", "memory to spare", "above the bound"
    table = headed("Schedules", *heads, left=(0,))
    least = found.least_seconds

    def row(one: Row) -> None:
        step, spare = one.step_ns / 1e9, one.outcome.headroom_bytes or 0.0
        memory = signed_bytes(spare) if one.fits else f"{signed_bytes(spare)}, does not fit"
        gap = percent(step / least - 1) if least else ""
        bubble = percent(one.outcome.kpis.get("bubble_fraction") or 0.0)
        table.add_row(one.name, str(one.virtual), duration(step), bubble, memory, gap)

    for one in (*((found.best,) if found.best else ()), *found.known):
        row(one)
    table.caption = (
        "Simulated by events. The bound is of the searched chunks: the busiest stage's passes, and "
        "what it waits for at the beginning and the end."
    )
    return table
