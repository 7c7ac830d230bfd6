"""Tensors of a folder of safetensors files: what is there, and one tensor or some rows of it at a
time, so that a model larger than memory can be read.

The format is https://github.com/huggingface/safetensors ; several files come with an index that
says which holds what.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from reference.files import sync, write_synced
from twin.errors import Problem, UsageError

INDEX: Final = "model.safetensors.index.json"
DTYPES: Final[Mapping[str, torch.dtype]] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Names of the format, and what they are here."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor on disk."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class Shards:
    """The safetensors files of one folder, open for reading.

    Raises UsageError: TW250 where there are none or one is missing, TW258 for one that is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Any] = {}
        self._of: dict[str, str] = {}
        stored: dict[str, Stored] = {}
        for name in _names(folder):
            opened = _open(folder / name)
            self._files[name] = opened
            for key in opened.keys():  # noqa: SIM118 - no mapping
                part = opened.get_slice(key)
                stored[key] = Stored(_dtype(part.get_dtype(), name), tuple(part.get_shape()))
                self._of[key] = name
        self.stored: Mapping[str, Stored] = stored

    def read(self, name: str) -> Tensor:
        """A whole tensor, of the values and type that the file holds."""
        return self._files[self._of[name]].get_tensor(name)

    def rows(self, name: str, expert: int | None, first: int, count: int) -> Tensor:
        """Some rows of a tensor, or of one matrix of a stack, without the rest."""
        part = self._files[self._of[name]].get_slice(name)
        rows = slice(first, first + count)
        return part[rows] if expert is None else part[expert : expert + 1, rows][0]


def _names(folder: Path) -> list[str]:
    """The files to read: those of the index, or all."""
    index = folder / INDEX
    if not index.is_file():
        names = sorted(path.name for path in folder.glob("*.safetensors"))
        if names:
            return names
        message = f"`{folder}` holds no safetensors files"
        raise UsageError([Problem("TW250", "", message, "give the folder with the weights")])
    try:
        listed = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(index, "it is no index of weights") from None
    outside = [name for name in listed if not isinstance(name, str) or Path(name).name != name]
    if outside:
        raise _damaged(index, f"it names `{outside[0]}`, which is no file beside it")
    missing = [name for name in listed if not (folder / name).is_file()]
    if missing:
        shown = ", ".join(f"`{name}`" for name in missing[:8])
        message = f"{len(missing)} of {len(listed)} files of weights are missing: {shown}"
        raise UsageError([Problem("TW250", str(folder), message, "download them again")])
    return listed


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise _damaged(path, str(error)) from None


def _dtype(name: str, file: str) -> torch.dtype:
    if name in DTYPES:
        return DTYPES[name]
    raise _damaged(Path(file), f"it holds numbers of type {name}, which nothing here reads")


def _damaged(path: Path, why: str) -> UsageError:
    message = f"`{path.name}` cannot be read: {why}"
    return UsageError([Problem("TW258", "", message, "download or write it again")])


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
