"""`twin track`: does the run do what was predicted, how long will it take, and does it drift?"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar

from twin.cli.output import NOT_AS_EXPECTED, Output, drawn
from twin.errors import render
from twin.evidence.live.follower import Follower, Track, follow
from twin.evidence.live.seals import add, keep
from twin.evidence.live.wording import sections, sentence
from twin.interop.recognise import recognise, stranger
from twin.reports.table import Block, Notes, headed


def track(  # noqa: PLR0913  one parameter per option of the command line
    *,
    run: str,
    against: str | None,
    steps: int | None,
    once: bool,
    check: bool,
    every: float,
    output: Output,
) -> int | None:
    """Follow a run: progress, remaining time, drift."""

    single = once or output.json
    follower = follow(run, against, steps, wait=not single)
    if (other := stranger(recognise(Path(run)), run, "track")) is not None:
        output.message(render([other]))
    if not single:
        _follow(follower, output, every)
    found = follower.look()
    kept = _kept(follower, wanted=check or found.state == "done")
    output.answer(found.to_json() | {"check": kept}, [_sentence(found)], tables(found))
    missed = found.prediction is not None and found.prediction.inside is False
    return NOT_AS_EXPECTED if missed else 0


def _follow(follower: Follower, output: Output, every: float) -> None:
    """Say how the run stands until it is done: in place where a person watches, else a line for
    each look that found something new."""
    if output.progress:
        _watch(follower, every)
        return
    said, known = "", None
    while (found := follower.look()).state != "done":
        if (found.step, found.state) != known and not output.quiet:
            known = found.step, found.state
            text = _sentence(found)
            if text != said:
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
            said = text
        time.sleep(every)


def _watch(follower: Follower, every: float) -> None:

    console = Console(file=sys.stderr, markup=False, emoji=False)
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while (found := follower.look()).state != "done":
            bar = ProgressBar(total=found.steps, completed=found.step, width=60)
            shown = Padding(bar, (0, 0, 1, 0))  # a bar ends no line
            live.update(Group(_sentence(found), shown, *map(drawn, tables(found))), refresh=True)
            time.sleep(every)


def _kept(follower: Follower, *, wanted: bool) -> dict[str, Any] | None:
    """The check of the run, kept beside the seals where that is wanted; None where there is nothing
    to check."""

    found = follower.check()
    if found is None or follower.seal is None:
        return None
    new = False
    if wanted:
        keep(follower.seal)  # one that came with the run may not be there yet
        new = add(found)
    return asdict(found) | {"hit": found.hit, "kept": wanted, "new": new}


def _sentence(found: Track) -> str:
    """How the run stands, in one line."""

    return sentence(found)


def tables(found: Track) -> list[Block]:
    """The run's progress, its comparison with the seal, and notes."""

    parts: list[Block] = []
    for title, rows in sections(found):
        table = headed("", title, "", left=(0, 1))
        for name, text in rows:
            table.add_row(name, text)
        parts.append(table)
    return [*parts, *(Notes("", (f"note: {note}",)) for note in found.notes)]
