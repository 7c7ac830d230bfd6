"""`twin improve`: what would make this plan better?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from twin.answers.executors import PoolChoice
from twin.answers.nearest import written
from twin.cli.answer import say_scope, search_progress, training
from twin.cli.output import DOES_NOT_FIT, Output, require_writable, write_text
from twin.cli.verbs import naming_options
from twin.explore.search.improve import LEAST, PATIENCE, Improvement, Tried
from twin.explore.search.improve import improve as search
from twin.explore.search.space import quantity
from twin.explore.sweep.points import points_folder
from twin.loading import load_any, resolve
from twin.reports.table import Table, headed, percent, signed_bytes

_EVERY: Final = 2.0
"""Seconds between two suggestions that are told before the answer."""


def improve(  # noqa: PLR0913  one parameter per option of the command line
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
    """What would make this plan better?"""

    with naming_options("improve"):
        seconds = quantity("patience", patience, "seconds") if patience else PATIENCE
    if path is not None:
        require_writable(path, force=force)
    loaded = training(load_any(scenario, sets), "improve")
    say_scope(loaded)
    with search_progress(output) as told:
        found = search(
            loaded,
            pool=PoolChoice(jobs),
            folder=None if no_cache else points_folder(),
            progress=told,
            found=_early(output),
            seconds=seconds,
        )
    output.answer(found.to_json(), found.sentences, [_table(found)] if found.offered else [])
    if path is not None and found.offered:
        best = found.offered[0].edit.overrides
        winner = [f"{field}={written(value)}" for field, value in best.items()]
        write_text(path, resolve(load_any(scenario, [*sets, *winner])), force=force)
        output.message(f"Wrote {path}. `twin run {path}` simulates it.")
    return 0 if found.usual.status == "fits" else DOES_NOT_FIT


def _early(output: Output) -> Callable[[Improvement], None]:
    """Tells the best edit so far, now and then."""
    last = [0.0]

    def tell(found: Improvement) -> None:
        if monotonic() - last[0] >= _EVERY:
            last[0] = monotonic()
            best = found.singles[0]
            output.message(f"So far: {percent(found.gain(best))} less with {best.edit.words}.")

    return tell


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
