"""The manifest of a finished build of token shards, and whether its files are undamaged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from twin.errors import Problem, UsageError

MANIFEST: Final = "manifest.json"
FORMAT: Final = "training-shards"
VERSION: Final = 1
_BUFFER: Final = 1 << 20


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
    whole = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while content := file.read(_BUFFER):
                whole.update(content)
    except OSError:
        return None
    return whole.hexdigest()


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
