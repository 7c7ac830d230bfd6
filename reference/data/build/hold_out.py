"""Which documents are never trained on nor rephrased: by a hash of the id (`reference.text.split`),
so that more documents move none. Near copies across the sides are gone before (`near`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from reference.data.build.record import Record, line_of


def fraction(name: str) -> float:
    """A hash of a name, even in [0, 1)."""
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def part(records: Iterable[Record], share: float, training: Path, held_out: Path) -> list[int]:
    """Writes both sides in order; how many documents each has."""
    counts = [0, 0]
    with (
        training.open("w", encoding="utf-8", newline="\n") as trained,
        held_out.open("w", encoding="utf-8", newline="\n") as judged,
    ):
        for record in records:
            apart = fraction(record.id) < share
            (judged if apart else trained).write(line_of(record))
            counts[apart] += 1
    return counts
