"""Near-duplicates: MinHash signatures, candidates by banding, judged by the estimated similarity.

Broder, "On the resemblance and containment of documents" (1997): of two sets the least hash under a
random function is equal with a probability of their Jaccard similarity J. The share of equal places
of two signatures of P functions estimates J with a standard error of sqrt(J (1 - J) / P). Banding
(Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, section 3.4): B bands of R places; a pair
is a candidate where one band is equal, with a probability of 1 - (1 - J^R)^B.

A document is dropped where a document that was kept before it is similar; similarity to a dropped
one counts nothing, so the result depends on the order, which is that of ingestion. A function's
hash is SplitMix64's finalizer of the shingle and a number: no permutation drawn at random, and
tests against exact similarity see no difference.

Memory: per kept document 8 P bytes of signature and B entries of some 100 bytes: 4 KB with 128
functions. Times in `tests/reference/text/test_near.py`.

Legend: S shingles of a document, P hash functions.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from twin.spec.base import Count, Flag, Spec

_WORD: Final = re.compile(r"\w+")
_CAUGHT: Final = 0.99
"""Probability with which a pair at the threshold is a candidate, at least."""
_CHUNK: Final = 1024
"""Shingles that are hashed at a time: with 128 functions 1 MB."""
GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
"""The step of SplitMix64: 2^64 over the golden ratio."""


class NearSpec(Spec):
    """Near-duplicates by MinHash (Broder 1997) and banding. Gopher drops documents from 0.8 on, of
    13-word shingles (Rae et al. 2021, arXiv:2112.11446, section A1.1); FineWeb aims at 0.75 with
    112 functions and 5 words (Penedo et al. 2024, arXiv:2406.17557, section 3.4)."""

    threshold: Annotated[float, Strict(), Field(gt=0, le=1)] = 0.8
    """Estimated Jaccard similarity from which a document is dropped."""
    permutations: Annotated[Count, Field(ge=16, le=1024)] = 128
    """Hash functions of a signature; the error is at most 0.5/sqrt(n)."""
    shingle: Annotated[Count, Field(le=20)] = 5
    """Words of a shingle."""
    off: Flag = False
    """Keep near-duplicates."""


@dataclass(frozen=True, slots=True)
class NearCopy:
    """A text that resembles one before it."""

    of: str
    """The name of that text."""
    similarity: float
    """The estimate of the Jaccard similarity, 0 to 1."""

    def __str__(self) -> str:
        return f"of {self.of} ({self.similarity:.2f})"


@dataclass(frozen=True, slots=True)
class Bands:
    """How signatures are cut."""

    bands: int
    rows: int

    def probability(self, jaccard: float) -> float:
        """That a pair of this similarity becomes a candidate."""
        return 1 - (1 - jaccard**self.rows) ** self.bands


def bands_of(permutations: int, threshold: float) -> Bands:
    """The longest bands, so the fewest candidates, that still catch a pair at the threshold with a
    probability of 99 %; bands of one row where none does."""
    cuts = (Bands(permutations // rows, rows) for rows in range(permutations, 0, -1))
    fit = (cut for cut in cuts if cut.probability(threshold) >= _CAUGHT)
    return next(fit, Bands(permutations, 1))


def shingles(text: str, words: int) -> NDArray[np.uint64]:
    """The different hashes of all runs of `words` words, case folded; of a text with fewer words
    that of the whole, and none of a text without words."""
    found = [zlib.crc32(word.encode()) for word in _WORD.findall(text.casefold())]
    hashes = np.array(found, dtype=np.uint64)
    width = min(words, len(hashes))
    if not width:
        return hashes
    run_S = np.zeros(len(hashes) - width + 1, dtype=np.uint64)
    for place in range(width):
        run_S = finalized(run_S * GOLDEN + hashes[place : place + len(run_S)])
    return np.unique(run_S)


def signature(shingle_S: NDArray[np.uint64], permutations: int) -> NDArray[np.uint64]:
    """The least hash of the shingles by each function, [P]."""
    number_P = finalized(np.arange(1, permutations + 1, dtype=np.uint64) * GOLDEN)
    least_P = np.full(permutations, np.iinfo(np.uint64).max, dtype=np.uint64)
    for start in range(0, len(shingle_S), _CHUNK):
        hash_PS = finalized(shingle_S[start : start + _CHUNK] ^ number_P[:, None])
        least_P = np.minimum(least_P, hash_PS.min(axis=1))
    return least_P


def similarity(one_P: NDArray[np.uint64], other_P: NDArray[np.uint64]) -> float:
    """The estimate of the Jaccard similarity, 0 to 1."""
    return float((one_P == other_P).mean())


def near_copies(texts: Iterable[tuple[str, str]], spec: NearSpec) -> Iterator[NearCopy | None]:
    """For each (name, text) the kept text that it resembles; None keeps it. A text without a word
    resembles none."""
    bands = bands_of(spec.permutations, spec.threshold)
    tables: list[dict[bytes, list[int]]] = [{} for _ in range(bands.bands)]
    kept: list[tuple[str, NDArray[np.uint64]]] = []
    for name, text in texts:
        shingle_S = shingles(text, spec.shingle)
        if not len(shingle_S):
            yield None
            continue
        own_P = signature(shingle_S, spec.permutations)
        keys = _keys(own_P, bands)
        candidates = sorted(
            {at for table, key in zip(tables, keys, strict=True) for at in table.get(key, ())}
        )
        alike = (NearCopy(kept[at][0], similarity(own_P, kept[at][1])) for at in candidates)
        copy = next((near for near in alike if near.similarity >= spec.threshold), None)
        if copy is None:
            for table, key in zip(tables, keys, strict=True):
                table.setdefault(key, []).append(len(kept))
            kept.append((name, own_P))
        yield copy


def _keys(signature_P: NDArray[np.uint64], bands: Bands) -> list[bytes]:
    rows = (signature_P[at * bands.rows : (at + 1) * bands.rows] for at in range(bands.bands))
    return [row.tobytes() for row in rows]


def finalized(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer (Steele, Lea and Flood 2014)."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
