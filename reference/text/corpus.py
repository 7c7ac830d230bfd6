"""The documents of a run: named texts, each once, in an order that no file system decides.

Whatever the source, documents come out sorted by name; a text that is there already under another
name, an empty one, and one that is not UTF-8 are left out and counted. All are held in memory (a
byte per character of ASCII text), which bounds this reader to corpora of some GB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from reference.text import files, stdlib
from reference.text.spec import STDLIB, DataSpec
from twin.errors import Problem, UsageError


@dataclass(frozen=True, slots=True)
class Document:
    """One text and its name, by which it is held out or trained on."""

    name: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Documents by name, and how many were left out, by why."""

    title: str
    """Where the text comes from, in words, with its version where it has one."""
    documents: tuple[Document, ...]
    duplicates: int
    """Texts that were there already under another name."""
    undecodable: int
    """Texts that are not UTF-8."""
    empty: int

    @cached_property
    def digest(self) -> str:
        """Of the names and texts, in hexadecimal: equal for equal corpora on every machine."""
        whole = hashlib.blake2b(digest_size=16)
        for document in self.documents:
            for part in (document.name.encode(errors="surrogateescape"), document.text.encode()):
                whole.update(len(part).to_bytes(8, "little"))
                whole.update(part)
        return whole.hexdigest()


def read_corpus(spec: DataSpec) -> Corpus:
    """All documents of the sources.

    Raises `UsageError`: TW220 a source that is not there, TW221 a format that is not read, TW222 a
    record without its text, TW223 no document at all, TW228 a package that is not installed.
    """
    titles = [stdlib.title() if source == STDLIB else source for source in spec.source]
    found = [entry for source in spec.source for entry in _entries(source, spec.field)]
    corpus = gather(", ".join(titles), found)
    if not corpus.documents:
        raise UsageError([_nothing(corpus)])
    return corpus


def gather(title: str, entries: Iterable[tuple[str, str | None]]) -> Corpus:
    """A corpus of named texts; None stands for a text that is not UTF-8."""
    documents: list[Document] = []
    seen: set[bytes] = set()
    undecodable = empty = duplicates = 0
    for name, text in sorted(entries, key=lambda entry: (entry[0], entry[1] or "")):
        if text is None:
            undecodable += 1
        elif not text.strip():
            empty += 1
        elif (digest := hashlib.blake2b(text.encode(), digest_size=16).digest()) in seen:
            duplicates += 1
        else:
            seen.add(digest)
            documents.append(Document(name, text))
    return Corpus(title, tuple(documents), duplicates, undecodable, empty)


def size(documents: Iterable[Document]) -> int:
    """Bytes of documents in UTF-8."""
    return sum(len(document.text.encode()) for document in documents)


def _entries(source: str, field: str) -> Iterator[tuple[str, str | None]]:
    return stdlib.texts() if source == STDLIB else files.texts(source, field)


def _nothing(corpus: Corpus) -> Problem:
    left_out = f"{corpus.empty} empty, {corpus.undecodable} not UTF-8"
    return Problem(
        "TW223",
        "data.source",
        f"no document in {corpus.title} ({left_out})",
        "write `stdlib`, or a file or folder with .jsonl, .parquet, .txt, .md, .rst or .py",
    )
