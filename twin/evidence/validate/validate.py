"""The verb: rows to answers, on as many processes as there are cores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import MappingProxyType
from typing import Final

from twin.evidence.validate import collectives, kernels, memory, other_rows, rl_steps, steps
from twin.evidence.validate.answer import Answers, RowResult, not_predicted, refused
from twin.evidence.validate.suite import PublishedRow

ANSWERS: Final[Mapping[str, Answers[[]]]] = MappingProxyType(
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
        "fact": other_rows.facts,
        "energy": other_rows.energy,
        **{category: other_rows.unanswered(category) for category in not_predicted()["categories"]},
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
    if row.category not in ANSWERS:
        return (refused(row, "none", f"rows of `{row.category}` say nothing that is predicted"),)
    return ANSWERS[row.category](row)


def validate(rows: Sequence[PublishedRow], processes: int) -> Iterator[tuple[RowResult, ...]]:
    """Answers row by row, in the order of the rows."""
    if processes < 2 or len(rows) < 2 * CHUNK:
        yield from map(answer, rows)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(answer, rows, chunksize=CHUNK)
