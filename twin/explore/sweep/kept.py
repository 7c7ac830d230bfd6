"""Outcomes kept by content, one small file each: `runs/points/<2 digits>/<hash>-<fidelity>.json`.

A file carries the digest of the code that answered: other code never reads it. A damaged file
counts as absent.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from twin.answers.key import source_digest
from twin.answers.store import discard_abandoned, optional, runs_folder, write_file
from twin.explore.sweep.outcome import Outcome, Way

_LOG = logging.getLogger(__name__)

VERSION: Final = 1
"""Version of the files."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a file holds. Anyone may edit it, so it is read only as far as its types hold."""

    version: Literal[1]
    twin_version: str
    source: str
    outcome: Outcome


_KEPT = TypeAdapter(_Kept)


def points_folder() -> Path:
    """Where outcomes are kept, as an absolute path, which workers in other folders find too."""
    return (runs_folder() / "points").absolute()


def place(folder: Path, name: str, fidelity: Way) -> Path:
    """The file of the scenario with this hash."""
    return folder / name[:2] / f"{name}-{fidelity}.json"


def recall(folder: Path, name: str, fidelity: Way) -> Outcome | None:
    """The outcome that this very code gave of the scenario with this hash; None where none is kept,
    or no sound one."""
    path = place(folder, name, fidelity)
    try:
        kept = _KEPT.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        _LOG.debug("%s is not readable: %s", path, error)
        return None
    ours = (version("twin"), source_digest(), name, fidelity)
    theirs = (kept.twin_version, kept.source, kept.outcome.hash, kept.outcome.fidelity)
    return kept.outcome if ours == theirs else None


def keep(folder: Path, outcome: Outcome) -> None:
    """Keep an outcome; where the folder cannot be written, say so once and go on without."""
    path = place(folder, outcome.hash, outcome.fidelity)
    kept = _Kept(VERSION, version("twin"), source_digest(), outcome)
    text = json.dumps(asdict(kept), allow_nan=False)
    with optional("Points", folder):
        write_file(path, text.encode())


def tidy(folder: Path) -> None:
    """Delete what killed processes left half-written."""
    discard_abandoned(folder, "??/.*.tmp")
