"""Sizes of a cluster, as a planner asks for them: `256:4096`, `256:4096:512` or `256,512,2048`, in
GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twin.errors import Origin, Problem, UsageError
from twin.planning.mesh import next_to
from twin.scenario import Scenario
from twin.spec.cluster import MOST_GPUS

MOST_SIZES: Final = 256
"""Sizes that one search compares."""


def nodes_of(scenario: Scenario, text: str) -> tuple[int, ...]:
    """The numbers of nodes. A range goes in steps of its lower end, unless it says others. Raises
    `UsageError` for what is none, or no whole nodes."""
    per_node = scenario.cluster.node.gpus
    found = sorted({size for part in text.split(",") for size in _part(part.strip(), text)})
    if len(found) > MOST_SIZES:
        _refuse(text, f"{len(found):,} sizes are more than {MOST_SIZES}", "write larger steps")
    for size in found:
        if size % per_node:
            below = size // per_node * per_node
            near = next_to(size, [one for one in (below, below + per_node) if one])
            fix = f"nearest {' or '.join(map(str, near))}"
            _refuse(text, f"{size} GPUs are no whole number of nodes of {per_node}", fix)
        if size > MOST_GPUS:
            _refuse(text, f"{size:,} GPUs are more than {MOST_GPUS:,}", f"at most {MOST_GPUS}")
    return tuple(size // per_node for size in found)


def _part(part: str, text: str) -> Iterator[int]:
    numbers = [_number(one, text) for one in part.split(":")]
    match numbers:
        case [one]:
            yield one
        case [low, high]:
            yield from _range((low, high, low), text)
        case [low, high, step]:
            yield from _range((low, high, step), text)
        case _:
            _refuse(text, f"`{part}` is no range", "write LOW:HIGH or LOW:HIGH:STEP")


def _range(ends: tuple[int, int, int], text: str) -> range:
    low, high, step = ends
    if high < low:
        _refuse(text, f"{high} is less than {low}", f"write {high}:{low}")
    return range(low, high + 1, step)


def _number(written: str, text: str) -> int:
    cleaned = written.strip().replace("_", "")
    if not cleaned.isdecimal() or not int(cleaned):
        _refuse(text, f"`{written}` is no number of GPUs", "write 256:4096, or 256,512,1024")
    return int(cleaned)


def _refuse(text: str, message: str, fix: str) -> None:
    origin = Origin("--gpus", 1, 1, text, len(text))
    raise UsageError([Problem("TW432", "", message, fix, origin)])
