"""The documents of a run: named texts, each once, in an order that no file system decides.

In a folder, hidden files and folders are passed over, and other suffixes than those of `files`.
Names are paths below the source that was given, with `:` and the number of the record, so that a
moved folder keeps its split.

The corpus that every machine has is the standard library of the running Python, its source with
its documentation strings, and the language reference that it carries (`pydoc_data`). Left out is
what differs between installations of one version: installed packages, the test suites (which
distributions package apart, and which are half of the text), and modules that the build writes
(`_sysconfigdata...`). So two machines with one version of CPython read the same corpus, as far as
nobody patched its modules. Left out too are `encodings`, tables that a generator wrote, most of
them near copies of each other; and every file that is no `.py`.

Whatever the source, documents come out sorted by name; a text that is there already under another
name, an empty one, and one that is not UTF-8 are left out and counted. All are held in memory (a
byte per character of ASCII text), which bounds this reader to corpora of some GB.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from reference.text.files import READERS, Defect, decoded, records
from reference.text.spec import STDLIB, DataSpec
from twin.errors import Problem, UsageError

Texts = Iterator[tuple[str, str | None]]
"""Names and texts; None: the text is not UTF-8."""
_LEFT_OUT: Final = frozenset(
    ["site-packages", "dist-packages", "test", "tests", "idle_test", "encodings", "__pycache__"]
)
_OF_ONE_MACHINE: Final = ("_sysconfigdata", "sitecustomize", "usercustomize")


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
    titles = [stdlib_title() if source == STDLIB else source for source in spec.source]
    found = [
        entry
        for source in spec.source
        for entry in (stdlib_texts() if source == STDLIB else _texts(source, spec.field))
    ]
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


def stdlib_title() -> str:
    """Which standard library: `the standard library of CPython 3.11.7`."""
    return f"the standard library of {platform.python_implementation()} {platform.python_version()}"


def stdlib_texts() -> Texts:
    """Name (path below the library) and text of every module."""
    root = Path(sysconfig.get_path("stdlib"))
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in _LEFT_OUT]
        for name in names:
            if name.endswith(".py") and not name.startswith(_OF_ONE_MACHINE):
                path = Path(folder, name)
                yield path.relative_to(root).as_posix(), decoded(path.read_bytes())


def _texts(source: str, field: str) -> Texts:
    """Every document of a file or folder."""
    root = Path(source).expanduser()
    try:
        if root.is_dir():
            for path in _below(root):
                name = f"{root.name}/{path.relative_to(root).as_posix()}"
                yield from _texts_of(path, name, field)
        elif root.is_file() and root.suffix.lower() not in READERS:
            wrong = f"`{root}`: the suffix `{root.suffix}` is no format of text"
            fix = f"one of {', '.join(READERS)}"
            raise UsageError([Problem("TW221", "data.source", wrong, fix)])
        else:
            yield from _texts_of(root, root.name, field)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        wrong = f"cannot read `{error.filename or source}`: {reason}"
        raise UsageError([Problem("TW220", "data.source", wrong, _hint(root))]) from None


def _texts_of(path: Path, name: str, field: str) -> Texts:
    for number, content in records(path, field):
        own = f"{name}:{number}" if number else name
        if not isinstance(content, Defect):
            yield own, decoded(content)
        elif content.reason == "not UTF-8":
            yield own, None
        elif content.reason != "empty":
            where = f"`{path}`" + (f" record {number}" if number else "")
            keys = ", ".join(f"`{key}`" for key in content.fields[:8])
            fix = f"set data.field to one of {keys}" if keys else ""
            raise UsageError([Problem("TW222", "data.field", f"{where} {content.message}", fix)])


def _below(root: Path) -> list[Path]:
    """The files of a folder that can be read, sorted; nothing hidden."""
    found: list[Path] = []
    for folder, below, names in os.walk(root, onerror=_refuse):
        below[:] = [name for name in below if not name.startswith(".")]
        seen = (Path(folder, name) for name in names if not name.startswith("."))
        found += [path for path in seen if path.suffix.lower() in READERS]
    return sorted(found)


def _refuse(error: OSError) -> None:
    raise error


def _hint(root: Path) -> str:
    nearest = next((parent for parent in root.absolute().parents if parent.is_dir()), None)
    names = sorted(path.name for path in nearest.iterdir()) if nearest else []
    there = ", ".join([name for name in names if not name.startswith(".")][:8])
    return f"in `{nearest}` there are: {there}" if there else ""


def _nothing(corpus: Corpus) -> Problem:
    left_out = f"{corpus.empty} empty, {corpus.undecodable} not UTF-8"
    return Problem(
        "TW223",
        "data.source",
        f"no document in {corpus.title} ({left_out})",
        "write `stdlib`, or a file or folder with .jsonl, .parquet, .txt, .md, .rst or .py",
    )
