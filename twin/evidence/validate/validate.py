"""The verb: rows to answers, on as many processes as there are cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import MappingProxyType
from typing import Final

from twin.evidence.validate import collectives, kernels, memory, other_rows, rl_steps, steps
from twin.evidence.validate.answer import RowResult, refused
from twin.evidence.validate.suite import PublishedRow, Unreadable

Ask = Callable[[PublishedRow], tuple[RowResult, ...]]
ASKED: Final[Mapping[str, Ask]] = MappingProxyType(
    {
        "train_step": steps.answers,
        "kernel": kernels.answers,
        "kernel_trace": kernels.traces,
        "collective": collectives.answers,
        "memory": memory.answers,
        "weight_update": other_rows.weight_updates,
        "serving": other_rows.serving,
        "rl_step": rl_steps.answers,
        "schedule": other_rows.schedules,
        "optimizer": other_rows.optimizer,
        "throughput_fact": other_rows.throughput,
        **{category: other_rows.unanswered(category) for category in other_rows.WHY},
    }
)
"""Who answers rows of a category."""
CHUNK: Final = 8
"""Rows that a process takes at once."""
_MOST_PROCESSES: Final = 8


def at_once() -> int:
    """Processes that predict at the same time where nobody says how many."""
    return min(os.cpu_count() or 1, _MOST_PROCESSES)


def answer(row: PublishedRow) -> tuple[RowResult, ...]:
    """The answers to one row; never raises for what is wrong with the row."""
    ask = ASKED.get(row.category)
    if ask is None:
        return (refused(row, "none", f"rows of `{row.category}` say nothing that is predicted"),)
    try:
        return ask(row)
    except Unreadable as why:
        return (refused(row, "none", str(why)),)


def validate(rows: Sequence[PublishedRow], processes: int) -> Iterator[tuple[RowResult, ...]]:
    """Answers row by row, in the order of the rows."""
    if processes < 2 or len(rows) < 2 * CHUNK:
        yield from map(answer, rows)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(answer, rows, chunksize=CHUNK)
