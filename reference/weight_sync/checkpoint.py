"""A start: the owners read a checkpoint of the trainer together, each saved piece once, by one of
them, and have the full set in host memory then.

A piece is what one rank of the trainer saved of a tensor (`reference.checkpoint.piece`): its bytes
are read in one go, checked against the checksum in them, and copied to their place. The SHA-256
sums of a checkpoint are over whole files, which nobody reads here; sizes are checked.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from reference.checkpoint.folder import MANIFEST
from reference.weight_sync.host_copies import HostCopies
from reference.weight_sync.units import Unit
from twin.errors import Problem, UsageError

_TENSORS: Final = "tensors"
_MODEL: Final = "model/"


@dataclass(frozen=True, slots=True)
class SavedPiece:
    """A piece of a tensor on disk: numbers `first` up to `end` of the whole, flattened."""

    ours: str
    first: int
    end: int
    file: str
    place: int
    bytes: int
    """In the file, with torch's own header."""

    def holds(self, unit: Unit) -> bool:
        """Whether a tensor of the full set lies in it."""
        start = _start(unit)
        size = torch.Size(unit.shape).numel()
        return unit.ours == self.ours and self.first <= start and start + size <= self.end


def saved(checkpoint: Path) -> tuple[SavedPiece, ...]:
    """All pieces of the model in a checkpoint. Raises UsageError TW626 where its files are not as
    its manifest says."""
    _check_sizes(checkpoint)
    from torch.distributed.checkpoint.filesystem import (  # noqa: PLC0415  a second to load
        FileSystemReader,
    )

    metadata = FileSystemReader(checkpoint / _TENSORS).read_metadata()
    places: Mapping[Any, Any] = metadata.storage_data
    found: list[SavedPiece] = []
    for index, place in places.items():
        if index.fqn.startswith(_MODEL):
            stored: Any = metadata.state_dict_metadata[index.fqn]
            (size,) = next(chunk.sizes for chunk in stored.chunks if chunk.offsets == index.offset)
            first = index.offset[0]
            own = index.fqn.removeprefix(_MODEL)
            where = place.relative_path, place.offset, place.length
            found.append(SavedPiece(own, first, first + size, *where))
    return tuple(sorted(found, key=lambda piece: (piece.file, piece.place)))


def dealt(
    pieces: Sequence[SavedPiece], units: Sequence[Unit], owners: int
) -> tuple[tuple[tuple[SavedPiece, ...], ...], dict[str, tuple[int, ...]]]:
    """The pieces that each owner reads, about as many bytes for each, and by tensor of the full set
    its owner: who reads it. Raises UsageError TW626 where a tensor is in no piece."""
    by_name: dict[str, list[tuple[int, SavedPiece]]] = {}
    own: list[list[SavedPiece]] = [[] for _ in range(owners)]
    filled = [0] * owners
    for piece in sorted(pieces, key=lambda each: -each.bytes):
        owner = filled.index(min(filled))
        filled[owner] += piece.bytes
        own[owner].append(piece)
        by_name.setdefault(piece.ours, []).append((owner, piece))
    found: dict[str, tuple[int, ...]] = {}
    for unit in units:
        holding = [owner for owner, piece in by_name.get(unit.ours, ()) if piece.holds(unit)]
        if not holding:
            message = f"`{unit.name}` is in no piece of the checkpoint"
            raise UsageError([Problem("TW626", "", message, "name a checkpoint of this model")])
        found[unit.name] = (holding[0],)
    return tuple(map(tuple, own)), found


def read(checkpoint: Path, pieces: Iterable[SavedPiece], host: HostCopies, version: int) -> int:
    """Read an owner's pieces into its host copies; the bytes read from disk. Raises UsageError
    TW626 for a piece that is damaged."""
    by_name: dict[str, list[Unit]] = {}
    for unit in host.units.values():
        by_name.setdefault(unit.ours, []).append(unit)
    total = 0
    for piece in pieces:
        with (checkpoint / _TENSORS / piece.file).open("rb", buffering=0) as file:
            file.seek(piece.place)
            data = bytearray(piece.bytes)
            view, reached = memoryview(data), 0
            while count := file.readinto(view[reached:]):
                reached += count
        total += reached
        numbers = _numbers(piece, data)
        for unit in by_name.get(piece.ours, ()):
            if piece.holds(unit):
                start = _start(unit) - piece.first
                size = torch.Size(unit.shape).numel()
                host.tensor(unit.name).copy_(numbers[start : start + size].view(unit.shape))
    host.version = version
    return total


def _numbers(piece: SavedPiece, data: bytearray) -> torch.Tensor:
    """The numbers of a piece, flat, its checksums checked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            wrong = archive.testzip()
        if wrong is None:
            return torch.load(io.BytesIO(data), weights_only=True).flatten()
    except (zipfile.BadZipFile, EOFError, RuntimeError):
        pass
    message = f"`{piece.file}` does not hold what was written of `{piece.ours}`"
    raise UsageError([Problem("TW626", "", message, "name another checkpoint")])


def _start(unit: Unit) -> int:
    """The place of its first number in the parameter, flattened."""
    return (unit.expert or 0) * torch.Size(unit.shape).numel()


def _check_sizes(checkpoint: Path) -> None:
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
        wrong = [
            name
            for name, facts in manifest["files"].items()
            if (checkpoint / name).stat().st_size != facts["bytes"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        wrong = [MANIFEST]
    if wrong:
        message = f"`{wrong[0]}` of `{checkpoint}` is missing, or not what was written"
        raise UsageError([Problem("TW626", "", message, "name another checkpoint")])
