"""A model of the reference, in its folder or in a trainer's checkpoint, to a Hugging Face folder
with the names and shapes of DeepSeek-V3's and Kimi K2's: one tensor per expert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import torch
from torch import Tensor

from reference.convert.companions import copy_companions
from reference.convert.config import config_of
from reference.convert.done import Done
from reference.convert.folder import read_kept, read_model, refuse_other, wanted
from reference.convert.from_hf import CONFIG
from reference.convert.names import Part, tensors
from reference.convert.shards import Shards, Stored
from reference.convert.trained import Trained, is_trained
from reference.convert.writer import Planned, staged, write, write_json

_TYPES: Final = {
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
}


class Tensors(Protocol):
    """Our tensors, wherever they are."""

    stored: Mapping[str, Stored]

    def rows(self, name: str, expert: int | None, first: int, count: int) -> Tensor:
        """Some rows of a tensor, or of one matrix of a stack."""
        ...


def to_hf(source: Path, target: Path, dtype: torch.dtype | None = None) -> Done:
    """Convert `source`, a folder of the reference, a checkpoint or a run's folder, to a new folder
    `target`, in the stored type or in `dtype`.

    Raises UsageError, and writes nothing, where `source` is not whole (TW250, TW253 to TW255,
    TW258), is no model that Hugging Face's classes compute (TW257), or `target` cannot be written
    (TW256).
    """
    if is_trained(source):
        trained = Trained(source)
        model, held, kept = trained.model, trained, {}
    else:
        model, held, kept = read_model(source), Shards(source), read_kept(source)
    config = config_of(model, kept)
    refuse_other(_kept_ones(wanted(tensors(model)), held), held.stored, source)
    main = dtype or held.stored["embedding.weight"].dtype
    planned = [_planned(part, held, dtype) for whole in tensors(model) for part in whole.parts]
    with staged(target) as folder:
        write(folder, planned)
        write_json(folder / CONFIG, config | {"torch_dtype": _TYPES[main]})
        copy_companions(source, folder)
    return Done(model, len(planned), sum(one.bytes for one in planned), ())


def _kept_ones(
    shapes: dict[str, tuple[int, ...]], held: Shards | Trained
) -> dict[str, tuple[int, ...]]:
    """A trainer's state dict names the tied head, too."""
    both = "head.weight" not in shapes and isinstance(held, Trained)
    return {**shapes, "head.weight": shapes["embedding.weight"]} if both else shapes


def _planned(part: Part, held: Tensors, dtype: torch.dtype | None) -> Planned:
    bias = part.theirs.endswith("e_score_correction_bias")
    own = held.stored[part.ours].dtype if bias or dtype is None else dtype
    return Planned(part.theirs, own, part.shape, partial(_piece, part, held, own))


def _piece(part: Part, held: Tensors, dtype: torch.dtype) -> Iterator[Tensor]:
    yield held.rows(part.ours, part.expert, part.first_row, part.shape[0]).to(dtype)
