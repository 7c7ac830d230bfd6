"""A folder of checkpoints: written together, listed, checked, and pruned."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from reference.checkpoint.piece import HeldRanges, Pieces, Whole, held_by, listed, on_all, on_first
from reference.files import sync, write_synced
from twin.errors import Problem, UsageError

VERSION: Final = 2
"""Of the layout below; one that reads differently gets another number."""
MANIFEST: Final = "manifest.json"
_TENSORS: Final = "tensors"
_INDEX: Final = ".metadata"
"""Which numbers are in which file, as torch writes it."""
_PREFIX: Final = "step-"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a run is after `step` steps: tensors by name, and the rest as JSON.

    Of several ranks each has some pieces of the tensors, all of them every number once; the rest is
    the first rank's.
    """

    step: int
    tensors: Mapping[str, Pieces]
    facts: Mapping[str, Any]
    """Loader, stage and tokens so far: whatever is no tensor."""
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class IntactCheckpoint:
    """An intact checkpoint on disk: every file has the bytes that were written."""

    path: Path
    step: int
    facts: Mapping[str, Any]
    config: Mapping[str, Any]
    shapes: Mapping[str, Whole]
    """Data type and shape of every tensor, whoever wrote its pieces."""


class DamagedError(Exception):
    """A checkpoint that is not what was written; the text says what is wrong with it."""


def save(folder: Path, snapshot: Snapshot, keep: int, group: ProcessGroup | None = None) -> Path:
    """Write a checkpoint into `folder`, which then holds the newest `keep`; returns its path.

    All ranks of a group, which has a backend for the CPU, write it together. Raises on all of them
    where one cannot: UsageError TW310, or TW311 where it has another folder.
    """
    held = held_by(group, snapshot.tensors)
    wrong = [name for name, one in held.items() if not one.once]
    if wrong:
        raise ValueError(f"not every number of `{wrong[0]}` is in one piece: {held[wrong[0]]}")
    partial = on_first(group, lambda: _begin(folder, snapshot.step))
    on_all(group, lambda: _look(partial))
    on_all(group, lambda: _write_tensors(partial / _TENSORS, snapshot.tensors, group))
    written = on_all(group, lambda: _written(partial, 0 if group is None else dist.get_rank(group)))
    files = {name: facts for own in written for name, facts in own.items()}
    return on_first(group, lambda: _finish(partial, snapshot, held, files, keep))


def newest(
    folder: Path, group: ProcessGroup | None = None
) -> tuple[IntactCheckpoint | None, list[Problem]]:
    """The newest intact checkpoint, and those newer than it, refused by name. Of a group the first
    rank looks; raises UsageError TW311 on all where one does not see what it found."""
    found, refused = on_first(group, lambda: _newest(folder))
    if found is not None:
        manifests = on_all(group, lambda: _seen(found.path / MANIFEST))
        if len(set(manifests)) > 1:
            raise _not_shared(f"ranks find different checkpoints in `{found.path}`")
    return found, refused


def _newest(folder: Path) -> tuple[IntactCheckpoint | None, list[Problem]]:
    refused: list[Problem] = []
    for path in _listed(folder):
        try:
            return read(path), refused
        except DamagedError as damage:
            message = f"checkpoint `{path.name}` is refused: {damage}"
            refused.append(Problem("TW233", "", message, "the newest intact one is used"))
    return None, refused


def read(path: Path) -> IntactCheckpoint:
    """The checkpoint at `path`, every byte of it checked. Raises `DamagedError`."""
    manifest = _read_manifest(path)
    for name, facts in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise DamagedError(f"`{name}` is missing")
        size = file.stat().st_size
        if size != facts["bytes"]:
            raise DamagedError(f"`{name}` has {size:,} bytes instead of {facts['bytes']:,}")
        if _digest(file) != facts["sha256"]:
            raise DamagedError(f"`{name}` does not hold what was written")
    shapes = {name: (kind, tuple(shape)) for name, (kind, shape) in manifest["tensors"].items()}
    return IntactCheckpoint(path, manifest["step"], manifest["facts"], manifest["config"], shapes)


def load_tensors(
    checkpoint: IntactCheckpoint, wanted: Mapping[str, Pieces], group: ProcessGroup | None = None
) -> None:
    """Fill the given pieces, in place, with those numbers of the checkpoint's tensors of the same
    names. Each rank of a group passes what it wants; where one cannot have it, all fail."""
    on_all(group, lambda: _read_tensors(checkpoint, wanted))


def remove_unfinished(folder: Path) -> list[str]:
    """Delete what a killed process had begun to write or to delete; returns the names."""
    left = sorted(folder.glob(f".{_PREFIX}*"))
    for path in left:
        shutil.rmtree(path)
    return [path.name for path in left]


def _begin(folder: Path, step: int) -> Path:
    """A hidden folder for a new checkpoint, of a name that nobody else can have guessed."""
    name = f"{_PREFIX}{step:08d}"
    for left in folder.glob(f".{name}.*"):
        shutil.rmtree(left)
    partial = folder / f".{name}.{uuid4().hex[:8]}.partial"
    partial.joinpath(_TENSORS).mkdir(parents=True)
    return partial


def _look(path: Path) -> None:
    """Raises UsageError where this rank has another folder than the one that wrote there."""
    if not path.exists():
        raise _not_shared(f"{socket.gethostname()} does not see `{path}`, which a rank has written")


def _seen(file: Path) -> str:
    _look(file)
    return _digest(file)


def _not_shared(message: str) -> UsageError:
    fix = "name a folder that all machines share with `--set train.output=...`"
    return UsageError([Problem("TW311", "train.output", message, fix)])


def _write_tensors(folder: Path, tensors: Mapping[str, Pieces], group: ProcessGroup | None) -> None:
    from reference.checkpoint.tensors import write  # noqa: PLC0415  a second to load

    write(folder, tensors, group)


def _read_tensors(checkpoint: IntactCheckpoint, wanted: Mapping[str, Pieces]) -> None:
    from reference.checkpoint.tensors import read as read_pieces  # noqa: PLC0415  as above

    for name, pieces in wanted.items():
        there = checkpoint.shapes.get(name)
        for piece in listed(pieces):
            if piece.whole != there:
                raise ValueError(f"`{name}` is {there} in the checkpoint, not {piece.whole}")
    read_pieces(checkpoint.path / _TENSORS, wanted)


def _written(partial: Path, rank: int) -> dict[str, dict[str, Any]]:
    """Bytes and hash of the files that a rank has written; the first one wrote the index, too."""
    folder = partial / _TENSORS
    files = [*folder.glob(f"__{rank}_*"), *([folder / _INDEX] if rank == 0 else [])]
    return {
        str(path.relative_to(partial)): {"bytes": path.stat().st_size, "sha256": _digest(path)}
        for path in sorted(files)
    }


def _finish(
    partial: Path,
    snapshot: Snapshot,
    held: Mapping[str, HeldRanges],
    files: Mapping[str, Mapping[str, Any]],
    keep: int,
) -> Path:
    """All is written: say so, in one move."""
    folder, target = partial.parent, partial.parent / f"{_PREFIX}{snapshot.step:08d}"
    for name in files:
        _look(partial / name)
    _write_manifest(partial, snapshot, held, files)
    sync(partial / _TENSORS)
    sync(partial)
    if target.exists():  # refused when the run resumed; only now is there a better one
        _remove(target)
    partial.rename(target)
    sync(folder)
    for old in _listed(folder)[keep:]:
        _remove(old)
    return target


def _write_manifest(
    partial: Path,
    snapshot: Snapshot,
    held: Mapping[str, HeldRanges],
    files: Mapping[str, Mapping[str, Any]],
) -> None:
    manifest = {
        "version": VERSION,
        "torch": torch.__version__,
        "step": snapshot.step,
        "facts": snapshot.facts,
        "config": snapshot.config,
        "tensors": {name: one.whole for name, one in held.items()},
        "files": files,
    }
    text = json.dumps({**manifest, "sha256": _digest_of(manifest)}, indent=1)
    write_synced(partial / MANIFEST, text)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedError(f"`{MANIFEST}` is missing") from None
    except (OSError, ValueError):
        raise DamagedError(f"`{MANIFEST}` cannot be read") from None
    said = manifest.pop("sha256", None) if isinstance(manifest, dict) else None
    if said is None or said != _digest_of(manifest):
        raise DamagedError(f"`{MANIFEST}` does not hold what was written")
    if manifest["version"] != VERSION:
        raise DamagedError(f"its layout is version {manifest['version']}, this is {VERSION}")
    return manifest


def _listed(folder: Path) -> list[Path]:
    """The checkpoints by their names, the newest first."""
    found = (path for path in folder.glob(f"{_PREFIX}*") if path.is_dir())
    return sorted(found, key=lambda path: path.name, reverse=True)


def _remove(path: Path) -> None:
    """Delete a checkpoint so that a half-deleted one never has its name."""
    hidden = path.with_name(f".{path.name}.removed")
    shutil.rmtree(hidden, ignore_errors=True)
    path.rename(hidden)
    shutil.rmtree(hidden)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
