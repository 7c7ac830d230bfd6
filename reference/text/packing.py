"""Token files, folders of token shards, and streams of tokens.

Token files, and the endless stream that an epoch-wise shuffle of their documents makes.

Documents follow each other with one end-of-document token after each, and sequences are cut from
that stream wherever they fall, across documents: no padding, no token left out (GPT-3's packing,
arXiv:2005.14165, section B). K2's report does not say how it packs; that attention is not masked at
document boundaries is ours. Each epoch has its own order; the last sequence of an epoch runs into
the next one.

Legend: N tokens, D documents.

The manifest of a finished build of token shards, and whether its files are undamaged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reference.text.near import GOLDEN, finalized
from twin.errors import Problem, UsageError

Ids = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Tokens:
    """Documents as one row of ids, each with its end-of-document token."""

    ids_N: Ids
    """uint16, or uint32 for vocabularies above 65,536; memory-mapped where it comes from a file."""
    ends_D: NDArray[np.int64]
    """Where each document ends, its last token included."""
    digest: str = ""
    """Tells token files apart; a loader refuses the state of another one."""

    def __len__(self) -> int:
        return len(self.ids_N)

    def __iter__(self) -> Iterator[Ids]:
        """The documents."""
        start = 0
        for end in self.ends_D.tolist():
            yield self.ids_N[start:end]
            start = end

    def save(self, folder: Path, name: str) -> None:
        """Writes `name.npy` and `name_ends.npy`."""
        np.save(folder / f"{name}.npy", self.ids_N)
        np.save(folder / f"{name}_ends.npy", self.ends_D)


def id_type(vocabulary: int) -> np.dtype[Any]:
    """The type of ids below `vocabulary`, little-endian on the disk."""
    return np.dtype("<u2" if vocabulary <= 2**16 else "<u4")


def pack(documents: Sequence[Ids], vocabulary: int, digest: str = "") -> Tokens:
    """Documents of ids below `vocabulary` in a row; its last id ends each of them."""
    kind = id_type(vocabulary)
    end = np.array([vocabulary - 1], dtype=kind)
    rows = [part.astype(kind, copy=False) for ids in documents for part in (ids, end)]
    lengths = np.array([len(ids) + 1 for ids in documents], dtype=np.int64)
    return Tokens(np.concatenate([end[:0], *rows]), np.cumsum(lengths), digest)


def open_tokens(folder: Path, name: str, digest: str) -> Tokens:
    """What `Tokens.save` wrote, memory-mapped. Raises `OSError` or `ValueError` if damaged."""
    ids_N = np.load(folder / f"{name}.npy", mmap_mode="r")
    ends_D = np.load(folder / f"{name}_ends.npy")
    if len(ids_N) != (ends_D[-1] if len(ends_D) else 0):
        raise ValueError(f"{name}: {len(ids_N)} tokens for documents that end elsewhere")
    return Tokens(ids_N, ends_D, digest)


class TokenStream:
    """The documents in a new order each epoch, for ever; any stretch of it by its position.

    The order depends on (seed, epoch) alone, not on the version of NumPy: documents are sorted by
    a hash of their number (SplitMix64, Steele, Lea and Flood 2014).
    """

    def __init__(self, tokens: Tokens, seed: int) -> None:
        self.tokens = tokens
        self.seed = seed
        self._epoch = lru_cache(maxsize=2)(self._shuffled)

    def read(self, start: int, count: int) -> Ids:
        """`count` ids from position `start` on."""
        pieces: list[Ids] = []
        while count:
            epoch, offset = divmod(start, len(self.tokens))
            taken = min(count, len(self.tokens) - offset)
            pieces += self._pieces(epoch, offset, offset + taken)
            start, count = start + taken, count - taken
        return np.concatenate(pieces)

    def _pieces(self, epoch: int, start: int, stop: int) -> Iterator[Ids]:
        """The stretches of the token file that lie in [start, stop) of an epoch."""
        shifts_D, ends_D = self._epoch(epoch)
        place = int(np.searchsorted(ends_D, start, side="right"))
        while start < stop:
            end = min(stop, int(ends_D[place]))
            shift = int(shifts_D[place])
            yield self.tokens.ids_N[start + shift : end + shift]
            start, place = end, place + 1

    def _shuffled(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """In the order of the epoch: from the position in it to that in the file, and the ends."""
        ends_D = self.tokens.ends_D
        lengths_D = np.diff(ends_D, prepend=0)
        order_D = np.argsort(numbered(self.seed, epoch, len(ends_D)), kind="stable")
        shuffled_D = np.cumsum(lengths_D[order_D])
        return ends_D[order_D] - shuffled_D, shuffled_D


def numbered(seed: int, turn: int, count: int) -> NDArray[np.uint64]:
    """A 64-bit number for each of `count` things, from the seed and whose turn it is: sorting by it
    shuffles them."""
    key = _mix(_mix(np.array([seed], dtype=np.uint64)) + np.uint64(turn))
    return _mix(key + np.arange(count, dtype=np.uint64))


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's step and finalizer."""
    return finalized(values + GOLDEN)


MANIFEST: Final = "manifest.json"
FORMAT: Final = "training-shards"
VERSION: Final = 1


def is_build(folder: Path) -> bool:
    """Whether a folder holds a build that is done."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest. Raises `UsageError` TW473 where there is none that this version reads."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        hint = "give the folder of a finished build; `build CONFIG --resume` finishes one"
        raise UsageError([_unread(folder, "there is no manifest.json", hint)]) from None
    except ValueError:
        raise UsageError([_unread(folder, "manifest.json is not JSON", "build again")]) from None
    form = (found.get("format"), found.get("version")) if isinstance(found, dict) else None
    if form != (FORMAT, VERSION):
        raise UsageError([_unread(folder, f"manifest.json is of another form: {form}", "")])
    return found


def _unread(folder: Path, why: str, hint: str) -> Problem:
    return Problem("TW473", "data.source", f"`{folder}`: {why}", hint)


def damages(folder: Path, manifest: dict[str, Any]) -> list[Problem]:
    """TW474 for every file that training reads and that is missing or differs, with its name and
    its shard."""
    problems: list[Problem] = []
    for file, title, sha256 in _expected(manifest):
        found = file_digest(folder / file)
        if found != sha256:
            why = "is missing" if found is None else f"has sha256 {found}, not {sha256}"
            wrong = f"`{folder / file}` ({title}) {why}"
            hint = "the folder is damaged; build it again, or copy this file from another copy"
            problems.append(Problem("TW474", "data.source", wrong, hint))
    return problems


def _expected(manifest: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, title and checksum of all files that training reads, and of the table of documents."""
    for key, title in (("tokenizer", "the tokenizer"), ("documents", "the table of documents")):
        yield manifest[key]["file"], title, manifest[key]["sha256"]
    for side in ("training", "held_out"):
        for number, row in enumerate(manifest[side]):
            title = f"{side.replace('_', '-')} shard {number}"
            yield f"shards/{row['file']}", title, row["sha256"]
            yield f"shards/{row['index']}", f"index of {title}", row["index_sha256"]


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, a piece at a time; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class TokenOrigin:
    """Where a token comes from."""

    document: int
    """Row in the table of documents."""
    offset: int
    """Tokens of the document before it."""
    id: str
    source: str
    origin: str
    """`original`, or the style of a rewrite."""
    parent: str


def provenance(folder: Path, side: str, position: int) -> TokenOrigin:
    """The document of a token, by its position over all shards of a side. Raises `IndexError`
    where there is none."""
    manifest = read_manifest(folder)
    begin = 0
    for row in manifest[side]:
        if begin <= position < begin + row["tokens"]:
            pieces = np.load(folder / "shards" / row["index"])
            at = int(np.searchsorted(pieces[:, 0], position - begin, side="right")) - 1
            first, document, offset, _ = pieces[at].tolist()
            with (folder / manifest["documents"]["file"]).open("rb") as lines:
                found = json.loads(next(islice(lines, document, None)))
            own = {key: found[key] for key in ("id", "source", "origin", "parent")}
            return TokenOrigin(document, offset + position - begin - first, **own)
        begin += row["tokens"]
    raise IndexError(f"position {position} of {begin}")
