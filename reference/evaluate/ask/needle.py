"""A fact hidden in a long text, asked for at its end: how far back does a model find it?

After Kamradt's "Needle in a haystack" (2023). Each cell of the grid of depths and lengths has
texts of its own, cut from the task's filler to the length in tokens of the model that is judged.
Lengths beyond its training are left out and named, so that what is learned is measured, and not
how positions extrapolate; `context_tokens` moves that bound.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from reference.evaluate.ask import choose, generate
from reference.evaluate.ask.way import Asking, Found, Row, Way, seed_of
from reference.evaluate.spec import NeedleSpec
from reference.evaluate.statistics.intervals import grouped, share
from reference.evaluate.subjects.subject import Subject
from reference.evaluate.task import Case, Task

_SAID = "The secret word of {name} is {word}."
_ASKED = "The secret word of {name} is"


def _grid(task: Task) -> NeedleSpec:
    assert task.spec.needle is not None
    return task.spec.needle


def _lengths(task: Task, subject: Subject) -> list[int]:
    window = subject.window(task.spec.context_tokens)
    return [one for one in _grid(task).lengths if window is None or one <= window]


def _cases(task: Task, subject: Subject) -> list[Case]:
    """A case for each fact of each cell."""
    grid, row = _grid(task), task.cases[0].row
    found: list[Case] = []
    for length in _lengths(task, subject):
        for depth in grid.depths:
            for number in range(grid.facts):
                id_ = f"{length}-{depth:g}-{number}"
                made = _made(task, subject, (length, depth), seed_of(row["seed"], id_))
                place = {"length": length, "depth": depth}
                found.append(Case(id_, id_, {**made, **place}))
    return found


def _made(task: Task, subject: Subject, place: tuple[int, float], seed: int) -> Row:
    """Filler of as many whole sentences as fit, with the fact among them, and the question."""
    row, (length, depth), chance = task.cases[0].row, place, random.Random(seed)
    name = chance.choice(row["names"])
    words = chance.sample(row["words"], _grid(task).choices)
    said, asked = _SAID.format(name=name, word=words[0]), _ASKED.format(name=name)
    spare = task.spec.output_tokens if _grid(task).answer == "generate" else 4
    room = length - spare - subject.tokens(f"{said} {asked}") - 1
    filler = chance.sample(row["filler"], len(row["filler"]))
    kept: list[str] = []
    while (room := room - subject.tokens(f" {filler[len(kept) % len(filler)]}")) >= 0:
        kept.append(filler[len(kept) % len(filler)])
    at = round(depth * len(kept))
    text = " ".join([*kept[:at], said, *kept[at:], asked])
    right, choices = words[0], sorted(words)
    return {"prompt": text, "choices": choices, "target": right}


def _ask(task: Task, cases: Sequence[Case], asking: Asking) -> list[Row]:
    if _grid(task).answer == "choose":
        rows = choose.ask(task, cases, asking)
    else:
        spec = task.spec.model_copy(update={"scorer": "contains", "samples": 1})
        rows = generate.ask(replace(task, spec=spec), cases, asking)
    return [
        {**row, "length": case.row["length"], "depth": case.row["depth"]}
        for row, case in zip(rows, cases, strict=True)
    ]


def _sum_up(task: Task, rows: Sequence[Row]) -> Found:
    grid = _grid(task)
    lengths = sorted({row["length"] for row in rows})
    beyond = sorted(set(grid.lengths) - set(lengths))
    chosen = grid.answer == "choose"
    base = choose.sum_up(task, rows) if chosen else generate.sum_up(task, rows)
    matrix = {
        "title": "Share of facts found",
        "rows": {"name": "depth", "values": list(grid.depths)},
        "columns": {"name": "tokens", "values": lengths},
        "cells": [[_cell(rows, length, depth) for length in lengths] for depth in grid.depths],
    }
    return Found(
        {"found": share(grouped((row["group"], _value(row)[0]) for row in rows))},
        counts={**base.counts, "lengths_beyond_training": beyond},
        matrix=matrix,
    )


def _cell(rows: Sequence[Row], length: int, depth: float) -> Row:
    own = [row for row in rows if (row["length"], row["depth"]) == (length, depth)]
    found = share(grouped((row["group"], _value(row)[0]) for row in own))
    return {"value": found.value, "low": found.low, "high": found.high, "cases": len(own)}


def _value(row: Row) -> tuple[float, float]:
    return (row["score"], 1.0) if "score" in row else generate.value(row)


WAY = Way(
    lambda task: task.spec.form == "chat" and _grid(task).answer == "generate",
    lambda task: _grid(task).answer == "choose",
    _cases,
    _ask,
    _sum_up,
    _value,
)
