"""`twin improve`: what would make this plan better?"""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread
from time import monotonic
from typing import Any, Final

from twin.answers.executors import PoolChoice
from twin.answers.nearest import written
from twin.cli.answer import say_scope, search_progress, training
from twin.cli.output import DOES_NOT_FIT, Output, require_writable, write_text
from twin.cli.verbs import naming_options
from twin.explore.search.improve import PATIENCE, improving
from twin.explore.search.improvement import LEAST, Improvement, Tried
from twin.explore.search.space import quantity
from twin.explore.sweep.points import points_folder
from twin.loading import load_any, resolve
from twin.reports.table import Table, duration, headed, percent, signed_bytes
from twin.scenario import Scenario
from twin.schedules.custom import Custom, text_of

_EVERY: Final = 2.0
"""Seconds between two suggestions that are told before the answer."""


def improve(  # noqa: PLR0913  one parameter per option of the command line
    *,
    scenario: str,
    sets: list[str],
    patience: str | None,
    passes: str | None,
    path: Path | None,
    force: bool,
    jobs: int | None,
    no_cache: bool,
    output: Output,
) -> int | None:
    """What would make this plan better?"""

    with naming_options("improve"):
        seconds = quantity("patience", patience, "seconds") if patience else PATIENCE
        order = quantity("passes", passes, "seconds") if passes else 0.0
    for file in () if path is None else (path, _beside(path)):
        require_writable(file, force=force)
    loaded = training(load_any(scenario, sets), "improve")
    say_scope(loaded)
    folder = None if no_cache else points_folder()
    found = _searched(loaded, PoolChoice(jobs), folder, (seconds, order), output)
    tables = [_table(found)] * bool(found.offered) + [_steps(found)] * bool(found.milestones)
    output.answer(found.to_json(), found.sentences, tables)
    if path is not None and found.best.edit.fields:
        _write(found.best, (scenario, sets), path, force=force, output=output)
    return 0 if found.usual.status == "fits" else DOES_NOT_FIT


def _searched(
    scenario: Scenario,
    pool: PoolChoice,
    folder: Path | None,
    seconds: tuple[float, float],
    output: Output,
) -> Improvement:
    """The search, told while it runs."""
    patience, order = seconds
    found: Improvement | None = None
    told_at, told = 0.0, 0.0
    with search_progress(output) as tell, _stopped() as stop:
        for found in improving(
            scenario,
            pool=pool,
            folder=folder,
            seconds=patience,
            passes=order,
            stop=stop.is_set,
        ):
            if tell is not None and found.now is not None:
                tell(found.now)
            gain = found.gain(found.best) if found.usual.status == "fits" else 0.0
            if gain > told and monotonic() - told_at >= _EVERY:
                told_at, told = monotonic(), gain
                output.message(f"So far: {percent(gain)} less with {found.best.edit.words}.")
    assert found is not None
    return found


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
    """The file of a found order beside that of the plan."""
    return path.with_name(f"{path.stem}.schedule.yaml")


def _write(
    best: Tried, asked: tuple[str, list[str]], path: Path, *, force: bool, output: Output
) -> None:
    """The best plan; a found order of passes goes into a file of its own."""
    values = dict(best.edit.overrides)
    order = values.get("parallel.schedule")
    if isinstance(order, dict) and "orders" in order:
        write_text(_beside(path), text_of(Custom.model_validate(order)), force=force)
        values |= {"parallel.schedule": str(_beside(path))}
        output.message(f"Wrote {_beside(path)}, which `parallel.schedule` may name.")
    scenario, sets = asked
    chosen = [f"{field}={written(value)}" for field, value in values.items()]
    write_text(path, resolve(load_any(scenario, [*sets, *chosen])), force=force)
    output.message(f"Wrote {path}. `twin run {path}` simulates it.")


def _table(found: Improvement) -> Table:
    """The best pair and the best edits, with gain, memory and price."""
    table = headed("Better plans", "edit", "step", "gain", "memory", "what it takes", left=(0, 4))
    usual = found.usual.headroom_bytes or 0.0

    def row(one: Tried) -> None:
        used = usual - (one.outcome.headroom_bytes or 0.0)
        figures = found.step(one.step_ns), percent(found.gain(one)), signed_bytes(used)
        table.add_row(one.edit.words, *figures, one.edit.costs)

    for one in found.offered:
        row(one)
    table.caption = (
        f"Simulated by events. Edits below {percent(LEAST)} are left out. Of each field only the "
        "best edit is shown. Memory is that of the fullest GPU."
    )
    return table


def _steps(found: Improvement) -> Table:
    """The plan after each step of the search."""
    heads = "after", "step", "gain", "bubble", "memory to spare", "searched for"
    table = headed("Steps of the search", *heads, left=(0,))
    for one in found.milestones:
        outcome = one.best.outcome
        table.add_row(
            one.name if one.better or not one.seconds else f"{one.name}: none better",
            found.step(one.best.step_ns),
            percent(found.gain(one.best)),
            percent(outcome.kpis.get("bubble_fraction") or 0.0),
            signed_bytes(outcome.headroom_bytes or 0.0),
            duration(one.seconds) if one.seconds else "",
        )
    table.caption = "Each step begins with the best plan of the steps before."
    return table
