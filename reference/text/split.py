"""Which documents are held out, and which of those training knows all the same.

A document is held out by a hash of its name: adding documents moves none, and every seed and
tokenizer is judged by the same text. Exact copies are gone by then (`corpus`). Near copies are
found as GPT-3 looked for its contamination (Brown et al. 2020, arXiv:2005.14165, appendix C), by
runs that occur in training text too. Length and share are ours: a held-out document of which more
than half lies in runs of 64 bytes that training has belongs to neither side.

Legend: N bytes, W places where a run starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reference.text.documents import Document
from twin.errors import Problem, UsageError

_DOUBLINGS = 6
"""A run that counts as copied has 2^6 bytes, a line of code; shorter ones are idioms."""
COPIED = 0.5
"""Share of a document's runs above which it is a near copy."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Of the rolling hash: 2^64 over the golden ratio, odd (Knuth, TAOCP 3, section 6.4)."""
_CHUNK = 1 << 18
"""Bytes of training text that are hashed at a time: their hashes fit a cache."""
_SIEVE = 24
"""Bits of a hash that a table of 16 MB looks up, so that few places are searched for."""


@dataclass(frozen=True, slots=True)
class Split:
    """Training documents by name, held-out ones by the hash of it: any first part of these is a
    sample of the whole."""

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]
    near_copies: tuple[Document, ...]
    """Meant to be held out, but known to training for the most part."""


def split(documents: Sequence[Document], share: float) -> Split:
    """About `share` of the documents apart, at least one.

    Raises `UsageError` TW224 where there is but one document, or training knows all the others.
    """
    if not share:
        return Split(tuple(documents), (), ())
    if len(documents) < 2:
        hint = "split it into several files, or set data.held_out to 0"
        wrong = f"the only document, `{documents[0].name}`, cannot be held out and trained on"
        raise UsageError([Problem("TW224", "data.held_out", wrong, hint)])
    hashes = [fraction(document.name) for document in documents]
    order = sorted(range(len(documents)), key=lambda place: (hashes[place], place))
    count = min(max(1, sum(value < share for value in hashes)), len(documents) - 1)
    training = tuple(documents[place] for place in sorted(order[count:]))
    judged = [documents[place] for place in order[:count]]
    shares = copied_shares(training, judged)
    own = tuple(one for one, copied in zip(judged, shares, strict=True) if copied <= COPIED)
    copies = tuple(one for one, copied in zip(judged, shares, strict=True) if copied > COPIED)
    if not own:
        wrong = f"training text has most of each of the {count} documents to hold out"
        hint = "remove copies from data.source, or set data.held_out to 0"
        raise UsageError([Problem("TW224", "data.held_out", wrong, hint)])
    return Split(training, own, copies)


def copied_shares(training: Iterable[Document], others: Sequence[Document]) -> list[float]:
    """Of each of the others the share of its runs that training text has; 0 where it is shorter
    than a run."""
    runs = [_runs(document.text.encode()) for document in others]
    sought = np.unique(np.concatenate(runs)) if runs else np.zeros(0, dtype=np.uint64)
    known = np.zeros(len(sought), dtype=bool)
    sieve = np.zeros(1 << _SIEVE, dtype=bool)
    sieve[_sieved(sought)] = True
    for chunk in _chunks(training):
        run_W = _runs(chunk)
        likely_W = np.sort(run_W[sieve[_sieved(run_W)]])
        place_W = np.searchsorted(sought, likely_W)
        place_W[place_W == len(sought)] = 0
        known[place_W[sought[place_W] == likely_W]] = True
    return [
        float(known[np.searchsorted(sought, run_W)].mean()) if len(run_W) else 0.0 for run_W in runs
    ]


def _sieved(hash_W: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (hash_W >> np.uint64(64 - _SIEVE)).astype(np.int64)


def _chunks(documents: Iterable[Document]) -> Iterator[bytes]:
    """The documents' bytes, a zero byte after each, some MB at a time."""
    waiting = bytearray()
    for document in documents:
        waiting += document.text.encode() + b"\0"
        if len(waiting) >= _CHUNK:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


def _runs(content: bytes) -> NDArray[np.uint64]:
    """A 64-bit hash of the run at each place: of two halves, of which each is of two halves. Two
    runs in 10^9 differ and collide with a probability of 10^-10: no share moves."""
    hash_W = np.frombuffer(content, dtype=np.uint8).astype(np.uint64) + np.uint64(1)
    for doubling in range(_DOUBLINGS):
        half = 1 << doubling
        if len(hash_W) <= half:
            return hash_W[:0]
        hash_W = hash_W[:-half] * _MULTIPLIER + (hash_W[half:] ^ (hash_W[half:] >> np.uint64(31)))
    return hash_W


def fraction(name: str) -> float:
    """A hash of the name, even in [0, 1)."""
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
