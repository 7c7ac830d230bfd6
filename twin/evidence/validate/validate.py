"""The verb: rows to answers, on as many processes as there are cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import MappingProxyType
from typing import Final

from twin.evidence.validate import (
    collectives,
    facts,
    kernels,
    memory,
    rl_steps,
    schedules,
    serving,
    steps,
    traces,
    updates,
)
from twin.evidence.validate.answer import Answer, refused
from twin.evidence.validate.row import Row, Unreadable

Ask = Callable[[Row], tuple[Answer, ...]]
ASKED: Final[Mapping[str, Ask]] = MappingProxyType(
    {
        "train_step": steps.answers,
        "kernel": kernels.answers,
        "kernel_trace": traces.answers,
        "collective": collectives.answers,
        "memory": memory.answers,
        "weight_update": updates.answers,
        "serving": serving.answers,
        "rl_step": rl_steps.answers,
        "schedule": schedules.answers,
        "optimizer": facts.optimizer,
        "throughput_fact": facts.throughput,
        **{category: facts.unanswered(category) for category in facts.WHY},
    }
)
"""Who answers rows of a category."""
CHUNK: Final = 8
"""Rows that a process takes at once."""
_MOST_PROCESSES: Final = 8


def at_once() -> int:
    """Processes that predict at the same time where nobody says how many."""
    return min(os.cpu_count() or 1, _MOST_PROCESSES)


def answer(row: Row) -> tuple[Answer, ...]:
    """The answers to one row; never raises for what is wrong with the row."""
    ask = ASKED.get(row.category)
    if ask is None:
        return (refused(row, "none", f"rows of `{row.category}` say nothing that is predicted"),)
    try:
        return ask(row)
    except Unreadable as why:
        return (refused(row, "none", str(why)),)


def validate(rows: Sequence[Row], processes: int) -> Iterator[tuple[Answer, ...]]:
    """Answers row by row, in the order of the rows."""
    if processes < 2 or len(rows) < 2 * CHUNK:
        yield from map(answer, rows)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(answer, rows, chunksize=CHUNK)
