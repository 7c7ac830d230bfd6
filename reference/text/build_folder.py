"""The manifest of a build, what it promises, and whether the files keep it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from reference.text.packing import Tokens
from reference.text.prepared import Facts, Prepared
from reference.text.tokenizer import read_tokenizer
from twin.errors import Problem, UsageError

MANIFEST: Final = "manifest.json"
FORMAT: Final = "training-shards"
VERSION: Final = 1
_BUFFER: Final = 1 << 20


def id_type(vocabulary: int) -> np.dtype[Any]:
    """The type of an id on disk, little-endian."""
    return np.dtype("<u2" if vocabulary <= 2**16 else "<u4")


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


@dataclass(frozen=True, slots=True)
class Expected:
    """A file of the build, what it is, and the checksum it should have."""

    file: str
    what: str
    sha256: str


def expected(manifest: dict[str, Any]) -> Iterator[Expected]:
    """All files that training reads, and the table of documents."""
    for key, what in (("tokenizer", "the tokenizer"), ("documents", "the table of documents")):
        yield Expected(manifest[key]["file"], what, manifest[key]["sha256"])
    for side in ("training", "held_out"):
        for number, row in enumerate(manifest[side]):
            what = f"{side.replace('_', '-')} shard {number}"
            yield Expected(f"shards/{row['file']}", what, row["sha256"])
            yield Expected(f"shards/{row['index']}", f"index of {what}", row["index_sha256"])


def damages(folder: Path, manifest: dict[str, Any]) -> list[Problem]:
    """TW474 for every file that is missing or differs, with its name and its shard."""
    problems: list[Problem] = []
    for one in expected(manifest):
        found = file_digest(folder / one.file)
        if found != one.sha256:
            why = "is missing" if found is None else f"has sha256 {found}, not {one.sha256}"
            wrong = f"`{folder / one.file}` ({one.what}) {why}"
            hint = "the folder is damaged; build it again, or copy this file from another copy"
            problems.append(Problem("TW474", "data.source", wrong, hint))
    return problems


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, a piece at a time; None where it cannot be read."""
    whole = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while content := file.read(_BUFFER):
                whole.update(content)
    except OSError:
        return None
    return whole.hexdigest()


def open_build(folder: Path, vocabulary: int) -> Prepared:
    """The tokens of a build for a model of `vocabulary` ids.

    Raises `UsageError`: TW225 where the build has more ids, TW473 no manifest, TW474 each file that
    is damaged.
    """
    manifest = read_manifest(folder)
    if manifest["vocabulary"] > vocabulary:
        wrong = f"`{folder}` has {manifest['vocabulary']:,} token ids, the model {vocabulary:,}"
        hint = f"build with `tokenizer.vocab: {vocabulary}`"
        raise UsageError([Problem("TW225", "data.source", wrong, hint)])
    found = damages(folder, manifest)
    if found:
        raise UsageError(found)
    text = (folder / manifest["tokenizer"]["file"]).read_text(encoding="utf-8")
    tokenizer = read_tokenizer(manifest["tokenizer"]["kind"], text)
    digest = str(file_digest(folder / MANIFEST))[:16]
    sides = (_tokens(folder, manifest, side, digest) for side in ("training", "held_out"))
    return Prepared(_facts(folder, manifest), tokenizer, *sides)


def _tokens(folder: Path, manifest: dict[str, Any], side: str, digest: str) -> Tokens:
    kind = id_type(manifest["vocabulary"])
    rows = manifest[side]
    parts = [np.fromfile(folder / "shards" / row["file"], dtype=kind) for row in rows]
    counts = [np.load(folder / "shards" / row["index"])[:, 3] for row in rows]
    ids = np.concatenate([np.zeros(0, dtype=kind), *parts])
    ends = np.cumsum(np.concatenate([np.zeros(0, dtype=np.int64), *counts]))
    return Tokens(ids, ends, digest)


def _facts(folder: Path, manifest: dict[str, Any]) -> Facts:
    stages, sides = manifest["stages"], manifest["sides"]
    lost = [row for stage in stages.values() for row in stage.get("left_out", [])]

    def count(*reasons: str) -> int:
        return sum(row["documents"] for row in lost if row["reason"] in reasons)

    return Facts(
        title=f"the build in {folder}",
        tokenizer=manifest["tokenizer"]["kind"],
        training_documents=sides["training"]["documents"],
        training_bytes=sides["training"]["bytes"],
        held_out_documents=sides["held_out"]["documents"],
        held_out_bytes=sides["held_out"]["bytes"],
        near_copies=count("near-duplicate"),
        duplicates=count("duplicate"),
        undecodable=count("not UTF-8"),
        empty=count("empty"),
    )


@dataclass(frozen=True, slots=True)
class Place:
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


def provenance(folder: Path, side: str, position: int) -> Place:
    """The document of a token, by its position over all shards of a side. Raises `IndexError`
    where there is none."""
    manifest = read_manifest(folder)
    begin = 0
    for row in manifest[side]:
        if begin <= position < begin + row["tokens"]:
            pieces = np.load(folder / "shards" / row["index"])
            at = int(np.searchsorted(pieces[:, 0], position - begin, side="right")) - 1
            first, document, offset, _ = pieces[at].tolist()
            return _place(
                folder / manifest["documents"]["file"], document, offset + position - begin - first
            )
        begin += row["tokens"]
    raise IndexError(f"position {position} of {begin}")


def _place(table: Path, document: int, offset: int) -> Place:
    with table.open("rb") as lines:
        for number, line in enumerate(lines):
            if number == document:
                row = json.loads(line)
                return Place(
                    document, offset, row["id"], row["source"], row["origin"], row["parent"]
                )
    raise IndexError(f"document {document}")
