"""What an answer depends on: the scenario, the fidelity, and the twin's own code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import twin
from twin.kinds.base import Fidelity
from twin.loading import scenario_hash
from twin.scenario import Root

SOURCE: Final = Path(twin.__file__ or "").parent
"""The folder of the twin's own code."""


@dataclass(frozen=True, slots=True)
class Key:
    """Two answers with the same key are the same answer."""

    hash: str
    """Of the scenario, catalog values included, without its name and the places of its files."""
    fidelity: Fidelity
    twin_version: str
    source: str
    """Digest of the twin's own code: an edit of it never finds an older answer."""

    @property
    def folder(self) -> str:
        """Where the answer is kept: `runs/<hash>`, beside it what other fidelities say. The code is
        no part of the name, so that a new answer takes the place of the old one."""
        return self.hash if self.fidelity == "events" else f"{self.hash}-{self.fidelity}"


def key(scenario: Root, fidelity: Fidelity) -> Key:
    """The key of a scenario's answer from the code that is running."""
    return Key(scenario_hash(scenario), fidelity, version("twin"), source_digest())


@cache
def source_digest() -> str:
    """16 hexadecimal digits of the SHA-256 over every module of the twin, by path and content."""
    return digest_of(SOURCE, SOURCE.rglob("*.py"))


def digest_of(root: Path, files: Iterable[Path]) -> str:
    """16 hexadecimal digits of the SHA-256 over files below a folder, by path and content."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


source_digest()  # Now, while the files are still those that this process imports.
