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

Records in files: JSON lines, Parquet and plain text, by the suffix.

A plain file is one record; a line of JSONL and a row of Parquet are one each, numbered from 1. A
record that holds no text comes out as a `Defect`: the trainer raises it, a build counts it.

Sentences and pieces of a text, none of it lost.

A piece is as many sentences as fit (Kimi K2's figure 4: about 256 tokens; here words between white
space, since the tokenizer is trained later). A sentence longer than a piece is cut between words.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from reference.text.spec import STDLIB, DataSpec
from twin.errors import Problem, UsageError

_ESCAPED: Final = 6
"""Bytes by which JSON may write one: `\\u0041`."""
_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class Defect:
    """A record without text."""

    reason: str
    """As a build counts it."""
    message: str = ""
    """As an error says it, behind the name of the file."""
    fields: tuple[str, ...] = ()
    """The fields that do hold text."""


Content = bytes | str | Defect
Records = Iterator[tuple[int, Content]]
"""The number of each record, 0 for a whole file, and what it holds."""


def records(path: Path, field: str, most: int | None = None, asker: str = "data.source") -> Records:
    """Every record of a file, of any size or of at most `most` bytes; a file of an unknown suffix
    is plain text. Raises `OSError`, and `UsageError` TW228 for Parquet without pyarrow."""
    return READERS.get(path.suffix.lower(), _plain)(path, field, most, asker)


def decoded(content: bytes | str) -> str | None:
    """The text, or None where it is not UTF-8: JSON can spell half of a surrogate pair. Line ends
    stay as they are."""
    try:
        return content.decode() if isinstance(content, bytes) else content.encode().decode()
    except UnicodeError:
        return None


def _plain(path: Path, _field: str, most: int | None, _asker: str) -> Records:
    with path.open("rb") as file:
        content = file.read(-1 if most is None else most + 1)
    yield 0, content if most is None or len(content) <= most else Defect("huge")


def _json_lines(path: Path, field: str, most: int | None, _asker: str) -> Records:
    longest = -1 if most is None else _ESCAPED * most + 4096
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(longest):
            number += 1
            if len(line) == longest and not line.endswith(b"\n"):
                while (rest := lines.readline(longest)) and not rest.endswith(b"\n"):
                    pass
                yield number, Defect("huge")
            else:
                yield number, _of_line(line, field) if line.strip() else Defect("empty")


def _of_line(line: bytes, field: str) -> str | Defect:
    text = decoded(line)
    if text is None:
        return Defect("not UTF-8")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Defect("not JSON", f"is not JSON ({getattr(error, 'msg', 'nested too deeply')})")
    reason = f"no text in `{field}`"
    if not isinstance(record, dict):
        return Defect(reason, "is no JSON object")
    if isinstance(record.get(field), str):
        return record[field]
    keys = tuple(key for key, value in record.items() if isinstance(value, str))
    return Defect(reason, f"has {reason}", keys)


def _parquet(path: Path, field: str, _most: int | None, asker: str) -> Records:
    try:
        import pyarrow as pa  # noqa: PLC0415 - only who reads Parquet needs it
        from pyarrow import parquet  # noqa: PLC0415 - as above
    except ImportError:
        wrong, hint = f"reading `{path}` needs pyarrow", "install it: pip install pyarrow"
        raise UsageError([Problem("TW228", asker, wrong, hint)]) from None
    try:
        with parquet.ParquetFile(path) as table:
            kinds: dict[str, str] = {column.name: str(column.type) for column in table.schema_arrow}
            textual = tuple(key for key in kinds if kinds[key] in ("string", "large_string"))
            if field not in textual:
                reason = f"no column of text `{field}`"
                yield 0, Defect(reason, f"has {reason}", textual)
                return
            batches = table.iter_batches(batch_size=_ROWS, columns=[field])
            columns: Iterator[Any] = (batch.column(0).cast("binary") for batch in batches)
            contents = (content for column in columns for content in column.to_pylist())
            missing = Defect(f"no text in `{field}`", f"has no text in `{field}`")
            for number, content in enumerate(contents, start=1):
                yield number, missing if content is None else content
    except pa.ArrowException as error:
        yield 0, Defect("not Parquet", f"is no Parquet file ({error})")


READERS: Final[dict[str, Callable[[Path, str, int | None, str], Records]]] = {
    ".jsonl": _json_lines,
    ".parquet": _parquet,
    **dict.fromkeys((".txt", ".md", ".rst", ".py"), _plain),
}
"""How the files of each suffix are read."""


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


_BORDER: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9\-])|\n+|(?<=[。！？])\s*")
_WORD: Final = re.compile(r"[\u4e00-\u9fff]\s*|[^\s\u4e00-\u9fff]+\s*")
"""Between white space; a Chinese character counts as a word."""
_ABBREVIATION: Final = re.compile(r"(?:\b[A-Z]|\b(?:Mr|Mrs|Dr|Prof|St|No|vs|e\.g|i\.e))\.$")


def sentences(text: str) -> list[str]:
    """The sentences, white space around them left out. A border is the end of a line, and `.`, `!`
    or `?` before white space and a capital, a digit or a dash, but behind an initial or a title;
    and their Chinese forms anywhere."""
    found: list[str] = []
    start = 0
    for border in _BORDER.finditer(text):
        part = text[start : border.start()]
        if "\n" not in border[0] and _ABBREVIATION.search(part):
            continue
        found.append(text[start : border.end()])
        start = border.end()
    return [one.strip() for one in [*found, text[start:]] if one.strip()]


def cut(text: str, words: int) -> list[tuple[int, int]]:
    """Begin and end of each piece in characters; they follow each other and cover the text."""
    borders = [found.end() for found in _BORDER.finditer(text)]
    spaces = [found.end() for found in _WORD.finditer(text)]
    ends: list[int] = []
    begin = 0
    while begin < len(text):
        inside = [end for end in spaces if end > begin]
        if len(inside) <= words:
            ends.append(len(text))
            break
        limit = inside[words - 1]
        end = max((one for one in borders if begin < one <= limit), default=limit)
        ends.append(end)
        begin = end
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []
