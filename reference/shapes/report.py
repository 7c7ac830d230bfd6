"""Counts as JSON, one file for all ranks; and what a device holds at the fullest moment of a step.

Categories have the names of the simulator's ledger: what stands between steps; `activations` that
passes left behind for others; messages between stages, waited for, or on their way
(`pipeline_buffers`); and the `working_set` of the passes that run, all-to-alls included. What the
embedding, the head and the loss keep counts as activations, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from reference.config import RunSpec
from reference.shapes.count import Counts
from reference.shapes.watch import MESSAGE, Pass, Storage

STANDING: Final = ("parameters", "gradients", "optimizer_dense", "optimizer_expert")
NAMED: Final = 1 << 20
"""Bytes from which on a storage is listed by itself."""


@dataclass(frozen=True, slots=True)
class FullestStorage:
    """A storage at the fullest moment."""

    category: str
    name: str
    during: Pass | None
    bytes: int


def held(counts: Counts) -> tuple[FullestStorage, ...]:
    """All that the device holds then, largest first."""
    alive = [one for one in counts.storages if not one.host and one.alive(counts.at)]
    found = [
        FullestStorage(_category(one, counts), one.name, one.during, one.bytes) for one in alive
    ]
    return tuple(sorted(found, key=lambda one: -one.bytes))


def by_category(every: tuple[FullestStorage, ...]) -> dict[str, int]:
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


VERSION: Final = 1


def report(run: RunSpec, ranks: int, several: Sequence[Counts]) -> dict[str, Any]:
    """What was run, and each rank's counts."""
    return {
        "version": VERSION,
        "model": run.model.name,
        "ranks": ranks,
        "sequence": run.train.sequence,
        "micro_batch": run.train.micro_batch,
        "precision": run.train.precision,
        "parallel": run.parallel.model_dump(mode="json"),
        "memory": run.memory.model_dump(mode="json"),
        "counted": [one_rank(counts) for counts in several],
    }


def one_rank(counts: Counts) -> dict[str, Any]:
    """Of a rank: bytes, FLOP, and the fullest moment with all storages of 1 MiB and more."""
    every = held(counts)
    listed = [one for one in every if one.bytes >= NAMED]
    return {
        "rank": counts.rank,
        "stage": counts.stage,
        "microbatches": counts.microbatches,
        "collectives": [asdict(one) for one in counts.collectives],
        "parameters": counts.parameters,
        "standing": {name: asdict(one) for name, one in counts.standing.items()},
        "kept": [asdict(one) for one in counts.kept],
        "flop": flop(counts),
        "fullest": {
            "bytes": sum(one.bytes for one in every),
            "categories": by_category(every),
            "storages": [asdict(one) for one in listed],
        },
    }


def flop(counts: Counts) -> list[dict[str, Any]]:
    """FLOP of one pass of each kind and chunk, and of the optimizer."""
    total: defaultdict[tuple[str, int], float] = defaultdict(float)
    times: Counter[tuple[str, int]] = Counter()
    for one, number in counts.flop.items():
        place = ("optimizer", -1) if one is None else one[:2]
        total[place] += number
        times[place] += 1
    return [
        {
            "kind": kind,
            "chunk": chunk,
            "passes": times[kind, chunk],
            "flop": number / times[kind, chunk],
        }
        for (kind, chunk), number in sorted(total.items())
    ]
