"""What a rank's device holds at the fullest moment of a step, by category and by name.

Categories have the names of the simulator's ledger: what stands between steps; `activations` that
passes left behind for others; messages between stages, waited for, or on their way
(`pipeline_buffers`); and the `working_set` of the passes that run, all-to-alls included. What the
embedding, the head and the loss keep counts as activations, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from reference.shapes.count import Counts
from reference.shapes.watch import MESSAGE, Pass, Storage

STANDING: Final = ("parameters", "gradients", "optimizer_dense", "optimizer_expert")
NAMED: Final = 1 << 20
"""Bytes from which on a storage is listed by itself."""


@dataclass(frozen=True, slots=True)
class Held:
    """A storage at the fullest moment."""

    category: str
    name: str
    during: Pass | None
    bytes: int


def held(counts: Counts) -> tuple[Held, ...]:
    """All that the device holds then, largest first."""
    alive = [one for one in counts.storages if not one.host and one.alive(counts.at)]
    found = [Held(_category(one, counts), one.name, one.during, one.bytes) for one in alive]
    return tuple(sorted(found, key=lambda one: -one.bytes))


def by_category(every: tuple[Held, ...]) -> dict[str, int]:
    """Bytes of each category."""
    total: Counter[str] = Counter()
    for one in every:
        total[one.category] += one.bytes
    return dict(total)


def _category(one: Storage, counts: Counts) -> str:
    """What a pass has made is its working set, unless it outlives the pass: then it waits for
    another one."""
    if one.name in STANDING:
        return one.name
    if one.name == MESSAGE or (one.read is not None and one.read > counts.at):
        return "pipeline_buffers"
    if one.during is None:
        return "working_set"
    kind, end = one.during[0], counts.ends.get(one.during, counts.at)
    outlives = one.died is None or one.died > end
    return "activations" if outlives and (kind == "F" or end <= counts.at) else "working_set"
