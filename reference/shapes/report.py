"""Counts as JSON: one file for all ranks that were asked for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from reference.config import RunSpec
from reference.shapes.count import Counts
from reference.shapes.fullest import NAMED, by_category, held

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
