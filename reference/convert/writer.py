"""A folder of safetensors files, written piece by piece: the header, which has to say where every
tensor lies, follows from shapes alone, so that no tensor is ever whole in memory.

The folder appears under its name when everything is in it, or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from reference.convert.shards import DTYPES, INDEX
from reference.disk import sync, write_synced
from twin.errors import Problem, UsageError

SHARD: Final = 5_000_000_000
"""Bytes after which a file is full, as Hugging Face's are; a larger tensor has one for itself."""
_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
_ONLY: Final = "model.safetensors"
_ALIGNED: Final = 8
"""Tensors begin at multiples of so many bytes."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor to be written."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Tensor]]
    """Makes tensors of this type that follow one another in it."""

    @property
    def bytes(self) -> int:
        """On disk."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A hidden folder that becomes `folder` when all went well, and is gone otherwise.

    Raises UsageError TW256 where there is something already, or nothing can be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"`{folder}` exists already"
        raise UsageError([Problem("TW256", "", message, "name a new folder, or delete this one")])
    partial = folder.absolute().with_name(f".{folder.absolute().name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        sync(partial)
        partial.replace(folder)
        sync(folder.absolute().parent)
    except OSError as error:
        message = f"`{folder}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW256", "", message)]) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write(folder: Path, tensors: Sequence[Planned]) -> None:
    """Write the tensors into files of about `SHARD` bytes, and an index where there are several."""
    groups = list(_grouped(tensors))
    names = [
        f"model-{number:05d}-of-{len(groups):05d}.safetensors" if len(groups) > 1 else _ONLY
        for number in range(1, len(groups) + 1)
    ]
    for name, group in zip(names, groups, strict=True):
        _write_file(folder / name, group)
    if len(groups) == 1:
        return
    places = {one.name: name for name, group in zip(names, groups, strict=True) for one in group}
    total = sum(one.bytes for one in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    write_json(folder / INDEX, index)


def write_json(path: Path, document: object) -> None:
    """Write a JSON file, synced to disk."""
    write_synced(path, json.dumps(document, indent=2) + "\n")


def _grouped(tensors: Sequence[Planned]) -> Iterator[list[Planned]]:
    group: list[Planned] = []
    size = 0
    for one in tensors:
        if group and size + one.bytes > SHARD:
            yield group
            group, size = [], 0
        group.append(one)
        size += one.bytes
    yield group


def _write_file(path: Path, tensors: Sequence[Planned]) -> None:
    # Wide numbers first: every tensor is aligned to its own type, as readers ask.
    tensors = sorted(tensors, key=lambda one: -one.dtype.itemsize)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for one in tensors:
        start, end = end, end + one.bytes
        place = {"dtype": _NAMES[one.dtype], "shape": one.shape, "data_offsets": [start, end]}
        header[one.name] = place
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for one in tensors:
            before = file.tell()
            for piece in one.pieces():
                file.write(_bytes(piece))
            assert file.tell() - before == one.bytes, f"{one.name}: pieces are not the whole"
        file.flush()
        os.fsync(file.fileno())


def _bytes(piece: Tensor) -> memoryview:
    flat = piece.detach().cpu().contiguous().flatten().view(torch.uint8)
    return flat.numpy().data
