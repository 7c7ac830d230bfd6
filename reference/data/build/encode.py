"""Documents to ids in one file per side, and a table of documents beside them.

Row n of `documents.jsonl` is document n everywhere behind: id, source, domain, origin, parent,
bytes of text, tokens, side. A batch of documents is in memory at a time, and 8 bytes per document.

Legend: D documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from reference.data.build.record import FILE, Record
from reference.text.build_folder import id_type
from reference.text.tokenizer import Tokenizer

SIDES: Final = ("training", "held_out")
_BATCH: Final = 64


def encode_side(
    records: Iterable[Record], tokenizer: Tokenizer, side: str, folder: Path, table: IO[str]
) -> tuple[int, int]:
    """Appends a side's ids, each document with its end, and its rows; documents and tokens."""
    kind, waiting = id_type(tokenizer.vocabulary), iter(records)
    end = np.array([tokenizer.end], dtype=kind)
    documents = tokens = 0
    with (folder / f"{side}.bin").open("wb") as file:
        while batch := list(islice(waiting, _BATCH)):
            found = tokenizer.encode([record.text for record in batch])
            for record, ids in zip(batch, found, strict=True):
                file.write(ids.astype(kind).tobytes() + end.tobytes())
                table.write(_row(record, len(ids) + 1, side))
                documents, tokens = documents + 1, tokens + len(ids) + 1
    return documents, tokens


def _row(record: Record, tokens: int, side: str) -> str:
    row = {
        "id": record.id,
        "source": record.source,
        "domain": record.domain,
        "origin": record.origin,
        "parent": record.parent,
        "bytes": len(record.text.encode()),
        "tokens": tokens,
        "side": side,
    }
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_table(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of documents, in order."""
    with (folder / FILE).open("rb") as lines:
        for line in lines:
            yield json.loads(line)


def ends_of(lengths_D: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where documents begin in their file, and where the last one ends, [D + 1]."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths_D)])
