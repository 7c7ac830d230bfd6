"""Tensors of a folder of safetensors files: what is there, and one tensor or some rows of it at a
time, so that a model larger than memory can be read.

The format is https://github.com/huggingface/safetensors ; several files come with an index that
says which holds what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

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
