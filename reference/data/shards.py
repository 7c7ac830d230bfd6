"""The mixture of domains, and its shards.

Documents to ids, one file per side, and ids to shards.

Row n of `documents.jsonl` is document n everywhere behind: id, source, domain, origin, parent,
bytes of text, tokens, side. A batch of documents is in memory at a time, and 8 bytes per document.

Tokens lie in shards of one size, each with an index from position to document.

`NAME-00000.bin` holds ids; `NAME-00000.index.npy` rows of (first position in the shard, document,
first position in the document, tokens); `NAME-00000.json` says what they hold, their checksums, and
where the next shard goes on. The last is written when the others are on the disk: a shard that has
it is whole, and a build that was killed goes on behind the last such one.

Legend: D documents, V visits of documents, P pieces.

Which documents are read, how often and in which order.

Domains share the tokens by their weights. A domain that would be read more often than `max_epochs`
makes the whole smaller, so that weights hold. The next document is of the domain that is furthest
behind its share; within a domain each epoch has its own order from the seed. So at any point each
domain is within one document of its share. Whole documents only: the last one of a domain may reach
beyond it.

Legend: D documents, V visits.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from reference.data.spec import Domain, MixtureSpec
from reference.data.stage import FILE, Hook, Record, write_json
from reference.files import replace_synced
from reference.text.packing import id_type, numbered
from reference.text.tokenizer import Tokenizer
from twin.errors import Problem, UsageError

Lengths = Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]
"""By domain: the numbers of its documents, and their tokens."""


@dataclass(frozen=True, slots=True)
class Portion:
    """What a domain gives. Epochs: tokens read over tokens there are."""

    domain: str
    weight: float
    """Of 1."""
    available: int
    target: int
    tokens: int
    documents: int
    epochs: float


@dataclass(frozen=True)
class Mixture:
    """The order of reading, and each domain's part."""

    order_V: NDArray[np.int64]
    portions: tuple[Portion, ...]
    capped_by: str
    """The domain whose epochs bound the whole; empty where none does."""

    def report(self) -> dict[str, Any]:
        """As it stands in the manifest."""
        rows = [asdict(portion) for portion in self.portions]
        return {"capped_by": self.capped_by, "domains": rows}


def mix(lengths: Lengths, spec: MixtureSpec, seed: int) -> Mixture:
    """The mixture. Raises `UsageError` TW472 where a domain has weight and text nowhere."""
    if spec.epochs is not None:
        spec = _by_epochs(lengths, spec.epochs)
    weights = _weights(lengths, spec)
    available = {name: int(lengths[name][1].sum()) for name in weights}
    most = {name: spec.max_epochs * available[name] / weights[name] for name in weights}
    wanted = float(spec.tokens or sum(available.values()))
    tightest = min(most, key=lambda name: (most[name], name))
    total = min(wanted, most[tightest])
    targets = {name: round(total * weight) for name, weight in weights.items()}
    order, tokens, counts = _interleaved(lengths, targets, seed)
    portions = tuple(
        Portion(
            name,
            weights[name],
            available[name],
            targets[name],
            tokens[name],
            counts[name],
            tokens[name] / available[name],
        )
        for name in weights
    )
    capped = tightest if total < wanted else ""
    return Mixture(np.array(order, dtype=np.int64), portions, capped)


def _by_epochs(lengths: Lengths, epochs: Mapping[Any, float]) -> MixtureSpec:
    """The weights and tokens by which each domain is read so often."""
    wanted = {name: epochs.get(name, 1.0) * float(lengths[name][1].sum()) for name in lengths}
    weights = cast(
        "dict[Domain, float]", {name: most / max(wanted.values()) for name, most in wanted.items()}
    )
    return MixtureSpec(weights=weights, tokens=round(sum(wanted.values())), max_epochs=1000.0)


def _weights(lengths: Lengths, spec: MixtureSpec) -> dict[str, float]:
    """Of the domains that have text, as parts of 1."""
    there = {name: weight for name, weight in spec.weights.items() if weight and name in lengths}
    if not there:
        wrong = f"no text in any domain with a weight; there is text of: {', '.join(lengths)}"
        raise UsageError([Problem("TW472", "mixture.weights", wrong, "give one of them a weight")])
    whole = sum(there.values())
    return {name: weight / whole for name, weight in sorted(there.items())}


def _interleaved(
    lengths: Lengths, targets: Mapping[str, int], seed: int
) -> tuple[list[int], dict[str, int], dict[str, int]]:
    taken, counts = dict.fromkeys(targets, 0), dict.fromkeys(targets, 0)
    names = list(targets)
    streams = {name: _epochs(*lengths[name], seed, at) for at, name in enumerate(names)}
    order: list[int] = []
    while open_ := [name for name in names if taken[name] < targets[name]]:
        behind = min(open_, key=lambda name: (taken[name] / targets[name], name))
        document, length = next(streams[behind])
        order.append(document)
        taken[behind] += length
        counts[behind] += 1
    return order, taken, counts


def _epochs(
    documents_D: NDArray[np.int64], lengths_D: NDArray[np.int64], seed: int, domain: int
) -> Iterator[tuple[int, int]]:
    epoch = 0
    while True:
        order: Sequence[int] = np.argsort(
            numbered(seed * 4 + domain, epoch, len(documents_D)), kind="stable"
        ).tolist()
        yield from ((int(documents_D[at]), int(lengths_D[at])) for at in order)
        epoch += 1


SIDES: Final = ("training", "held_out")
_BATCH: Final = 64
Piece = tuple[int, int, int, int]
"""First position in the shard, document, first position in the document, tokens."""


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
    own = {key: getattr(record, key) for key in ("id", "source", "domain", "origin", "parent")}
    row = {**own, "bytes": len(record.text.encode()), "tokens": tokens, "side": side}
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_table(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of documents, in order."""
    with (folder / FILE).open("rb") as lines:
        for line in lines:
            yield json.loads(line)


def ends_of(lengths_D: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where documents begin in their file, and where the last one ends, [D + 1]."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths_D)])


@dataclass(frozen=True)
class Visits:
    """Documents in the order in which they are read."""

    order_V: NDArray[np.int64]
    """Numbers of documents."""
    starts_D: NDArray[np.int64]
    """Where each document begins in `ids`; the last entry is where the last one ends."""
    first: int
    """The number of the document that begins `ids`."""
    ids: NDArray[Any]
    names: Sequence[str]
    """By document: its source and origin, as the manifest counts them."""


def digest_of(content: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def write_shards(
    visits: Visits, size: int, name: str, folder: Path, reached: Hook
) -> list[dict[str, Any]]:
    """Every shard's row of the manifest, those there already included."""
    rows: list[dict[str, Any]] = []
    place = (0, 0)
    while place[0] < len(visits.order_V):
        stem = f"{name}-{len(rows):05d}"
        found = _there(folder, stem)
        if found is None:
            found = _write(visits, place, size, folder / stem, reached)
            reached(f"shards:{stem}:done")
        rows.append(found)
        place = tuple(found["next"])
    return rows


def _write(
    visits: Visits, place: tuple[int, int], size: int, path: Path, reached: Hook
) -> dict[str, Any]:
    folder, stem = path.parent, path.name
    pieces, following = _cut(visits, place, size)
    starts = visits.starts_D
    parts = [
        visits.ids[starts[document - visits.first] + offset :][:count]
        for _, document, offset, count in pieces
    ]
    ids = np.concatenate(parts).tobytes()
    held = io.BytesIO()
    np.save(held, np.array(pieces, dtype="<i8"))
    sources: Counter[str] = Counter()
    for _, document, _, count in pieces:
        sources[visits.names[document]] += count
    row = {
        "file": f"{stem}.bin",
        "tokens": sum(piece[3] for piece in pieces),
        "documents": len(pieces),
        "sha256": digest_of(ids),
        "index": f"{stem}.index.npy",
        "index_sha256": digest_of(held.getvalue()),
        "sources": dict(sorted(sources.items())),
        "first": [pieces[0][1], pieces[0][2]],
        "last": [pieces[-1][1], pieces[-1][2] + pieces[-1][3]],
        "next": list(following),
    }
    replace_synced(folder / f"{stem}.bin", ids)
    reached(f"shards:{stem}:half")
    replace_synced(folder / f"{stem}.index.npy", held.getvalue())
    write_json(folder / f"{stem}.json", row)
    return row


def _cut(visits: Visits, place: tuple[int, int], size: int) -> tuple[list[Piece], tuple[int, int]]:
    """The pieces of the shard that begins at a visit and a position in its document, and where the
    next one begins."""
    pieces: list[Piece] = []
    visit, offset = place
    filled = 0
    while filled < size and visit < len(visits.order_V):
        document = int(visits.order_V[visit])
        at = document - visits.first
        length = int(visits.starts_D[at + 1] - visits.starts_D[at])
        count = min(size - filled, length - offset)
        pieces.append((filled, document, offset, count))
        filled, offset = filled + count, offset + count
        if offset == length:
            visit, offset = visit + 1, 0
    return pieces, (visit, offset)


def _there(folder: Path, stem: str) -> dict[str, Any] | None:
    """The row of a shard that was written whole; one whose files differ is written again."""
    try:
        row = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
        ids, index = (folder / row["file"]).read_bytes(), (folder / row["index"]).read_bytes()
    except (OSError, ValueError):
        return None
    same = digest_of(ids) == row["sha256"] and digest_of(index) == row["index_sha256"]
    return row if same else None
