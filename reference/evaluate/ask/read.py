"""Bits per byte of whole texts: nats / ln 2 / bytes, over all texts together."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from reference.evaluate.ask.way import Asking, Found, Row, Way, opened, own_cases
from reference.evaluate.statistics.intervals import ratio
from reference.evaluate.task import Case, Task


def _ask(task: Task, cases: Sequence[Case], asking: Asking) -> list[Row]:
    texts = [case.row["text"] for case in cases]
    found = asking.subject.read(texts, task.spec.context_tokens)
    return [
        opened(case, nats=one.nats, bytes=one.bytes, tokens=one.tokens)
        for case, one in zip(cases, found, strict=True)
    ]


def _sum_up(task: Task, rows: Sequence[Row]) -> Found:
    del task
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append((row["nats"] / log(2), row["bytes"]))
    counts = {
        "texts": len(rows),
        "bytes": sum(row["bytes"] for row in rows),
        "tokens": sum(row["tokens"] for row in rows),
    }
    return Found({"bits_per_byte": ratio(groups)}, "lower", counts)


def _value(row: Row) -> tuple[float, float]:
    return row["nats"] / log(2), row["bytes"]


WAY = Way(lambda _: False, lambda _: True, own_cases, _ask, _sum_up, _value)
