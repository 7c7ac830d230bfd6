"""Checkpoints that are whole or absent: what a run needs to go on as if it had never stopped.

A checkpoint is a folder `step-00000120`: the tensors, written by `torch.distributed.checkpoint`,
and `manifest.json` with everything else (step, loader, configuration), the bytes and SHA-256 of
every file, and the versions that wrote it. It is written into a hidden folder, synced to disk and
renamed, so that a process killed at any moment leaves the previous ones as they were. Reading
checks every byte first; what is not intact is refused by name.

The tensors' index is a pickle, as torch writes it: read checkpoints only of people you trust. The
hashes find damage, not malice.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from twin.errors import Problem

VERSION: Final = 1
"""Of the layout below; one that reads differently gets another number."""
MANIFEST: Final = "manifest.json"
_TENSORS: Final = "tensors"
_PREFIX: Final = "step-"
_CHUNK: Final = 1 << 22
"""Bytes read at once while hashing."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a run is after `step` steps: tensors by name, and the rest as JSON."""

    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]
    """Loader, stage and tokens so far: whatever is no tensor."""
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An intact checkpoint on disk: every file has the bytes that were written."""

    path: Path
    step: int
    facts: Mapping[str, Any]
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[str, tuple[int, ...]]]
    """Data type and shape of every tensor."""


class DamagedError(Exception):
    """A checkpoint that is not what was written; the text says what is wrong with it."""


def save(folder: Path, snapshot: Snapshot, keep: int) -> Path:
    """Write a checkpoint into `folder`, which then holds the newest `keep`; returns its path."""
    target = folder / f"{_PREFIX}{snapshot.step:08d}"
    partial = folder / f".{target.name}.partial"
    _remove(partial)
    partial.mkdir(parents=True)
    _write_tensors(partial / _TENSORS, snapshot.tensors)
    _write_manifest(partial, snapshot)
    _sync(partial / _TENSORS)
    _sync(partial)
    if target.exists():  # refused when the run resumed; only now is there a better one
        _remove(target)
    partial.rename(target)
    _sync(folder)
    for old in _listed(folder)[keep:]:
        _remove(old)
    return target


def newest(folder: Path) -> tuple[Checkpoint | None, list[Problem]]:
    """The newest intact checkpoint, and those newer than it, refused by name."""
    refused: list[Problem] = []
    for path in _listed(folder):
        try:
            return read(path), refused
        except DamagedError as damage:
            message = f"checkpoint `{path.name}` is refused: {damage}"
            refused.append(Problem("TW233", "", message, "the newest intact one is used"))
    return None, refused


def read(path: Path) -> Checkpoint:
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
    return Checkpoint(path, manifest["step"], manifest["facts"], manifest["config"], shapes)


def load_tensors(checkpoint: Checkpoint, names: Mapping[str, Tensor]) -> None:
    """Fill the given tensors, in place, with those of the same names in the checkpoint."""
    # A second of imports, which no run without a checkpoint needs.
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415
    from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415

    with _one_process():
        reader = FileSystemReader(checkpoint.path / _TENSORS)
        load(dict(names), storage_reader=reader, no_dist=True)


def remove_unfinished(folder: Path) -> list[str]:
    """Delete what a killed process had begun to write or to delete; returns the names."""
    left = sorted(folder.glob(f".{_PREFIX}*"))
    for path in left:
        shutil.rmtree(path)
    return [path.name for path in left]


def _write_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    # As above.
    from torch.distributed.checkpoint import state_dict_saver  # noqa: PLC0415
    from torch.distributed.checkpoint.filesystem import FileSystemWriter  # noqa: PLC0415

    with _one_process():
        # The writer syncs each file before it returns.
        writer = FileSystemWriter(folder)
        state_dict_saver.save(dict(tensors), storage_writer=writer, no_dist=True)


@contextmanager
def _one_process() -> Iterator[None]:
    """Without the warning that there is no process group, which is meant here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _write_manifest(folder: Path, snapshot: Snapshot) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        "version": VERSION,
        "torch": torch.__version__,
        "step": snapshot.step,
        "facts": snapshot.facts,
        "config": snapshot.config,
        "tensors": {
            name: [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
            for name, tensor in snapshot.tensors.items()
        },
        "files": {
            str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": _digest(path)}
            for path in files
        },
    }
    text = json.dumps({**manifest, "sha256": _digest_of(manifest)}, indent=1)
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


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
    """Delete a folder so that a half-deleted one never has a checkpoint's name."""
    if not path.exists():
        return
    hidden = path if path.name.startswith(".") else path.with_name(f".{path.name}.removed")
    if hidden != path:
        shutil.rmtree(hidden, ignore_errors=True)
        path.rename(hidden)
    shutil.rmtree(hidden)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _digest_of(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _sync(folder: Path) -> None:
    """Make a folder's entries survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
