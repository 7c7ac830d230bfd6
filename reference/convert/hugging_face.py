"""Hugging Face folders to folders of the reference, and back, with the names and shapes of
DeepSeek-V3's and Kimi K2's: one tensor per expert.

FP8 weights with a scale per block of 128 x 128 (DeepSeek-V3, arXiv:2412.19437, section 3.3.2)
become bf16. What is in memory is one released tensor: an expert's matrix, or at most a table.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from reference.convert.config import (
    TABLES,
    Config,
    ReleasedPart,
    Whole,
    config_of,
    model_of,
    tensors,
)
from reference.convert.folder import (
    Trained,
    is_trained,
    read_kept,
    read_model,
    refuse_other,
    wanted,
    write_model,
)
from reference.convert.shards import Planned, Shards, Stored, staged, write, write_json
from reference.kernels.fp8 import TILE, dequantize_blocks
from twin.errors import Problem, UsageError
from twin.spec.model import ModelSpec

CONFIG: Final = "config.json"
_SCALE: Final = "_scale_inv"
_FP8: Final = torch.float8_e4m3fn
_FREQUENCIES: Final = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Saved with some releases, and known from `rope_theta`."""
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Done:
    """The model that was converted, and what was written."""

    model: ModelSpec
    tensors: int
    bytes: int
    """Of tensors on disk."""
    notes: tuple[str, ...]
    """What a reader must know, as sentences."""


def from_hf(source: Path, target: Path, dtype: torch.dtype | None = None) -> Done:
    """Convert the folder `source` to a new one, `target`, in the stored type or in `dtype`.

    Raises UsageError, and writes nothing, where the folder is not what its `config.json` says
    (TW250, TW253 to TW255, TW258), that says what the reference does not compute (TW251, TW252,
    TW259), or `target` cannot be written (TW256).
    """
    config = read_config(source)
    found = model_of(config, source.absolute().name or "model")
    _refuse_other_quantization(config)
    shards = Shards(source)
    wholes, left_out = tuple(tensors(found.model)), _predictions(found, shards)
    refuse_other(_expected(wholes, shards.stored), _needed(found, shards, left_out), source)
    planned = [_planned_ours(whole, shards, dtype) for whole in wholes]
    with staged(target) as folder:
        write(folder, planned)
        write_model(folder, found.model, found.kept)
        copy_companions(source, folder)
    notes = [f"{len(left_out):,} tensors of prediction layers are left out"] if left_out else []
    return Done(found.model, len(planned), sum(one.bytes for one in planned), tuple(notes))


def read_config(folder: Path) -> dict[str, Any]:
    """The keys of a folder's `config.json`. Raises UsageError TW250 where there are none."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = None
    if isinstance(config, dict):
        return config
    message = f"`{folder}` holds no `{CONFIG}` that can be read"
    raise UsageError([Problem("TW250", "", message, "give a folder as Hugging Face has it")])


def _predictions(found: Config, shards: Shards) -> set[str]:
    """Tensors of the layers that predict further tokens."""
    layers = range(found.model.layers, found.model.layers + found.prediction_layers)
    return {
        name
        for name in shards.stored
        if (layer := _LAYER.match(name)) is not None and int(layer[1]) in layers
    }


def _needed(found: Config, shards: Shards, left_out: set[str]) -> dict[str, Stored]:
    """What is stored, without what follows from the rest or is left out."""
    tied = "lm_head.weight" if found.model.tied_embeddings else ""
    return {
        name: held
        for name, held in shards.stored.items()
        if name not in left_out and name != tied and not _FREQUENCIES.fullmatch(name)
    }


def _expected(
    wholes: tuple[Whole, ...], stored: Mapping[str, Stored]
) -> dict[str, tuple[int, ...]]:
    """Shapes of the released tensors, with those of the scales of FP8 weights."""
    shapes: dict[str, tuple[int, ...]] = {}
    for part in (part for whole in wholes for part in whole.parts):
        shapes[part.theirs] = part.shape
        if part.theirs in stored and stored[part.theirs].dtype == _FP8:
            shapes[part.theirs + _SCALE] = tuple(-(-size // TILE) for size in part.shape)
    return shapes


def _refuse_other_quantization(config: Mapping[str, Any]) -> None:
    said = config.get("quantization_config")
    if not said:
        return
    kind, block = said.get("quant_method"), said.get("weight_block_size")
    if kind == "fp8" and block == [TILE, TILE]:
        return
    message = f"weights quantized by `{kind}` in blocks of {block} are not read"
    fix = f"FP8 in blocks of {TILE} x {TILE} is, and what is not quantized"
    raise UsageError([Problem("TW259", f"{CONFIG} quantization_config", message, fix)])


def _planned_ours(whole: Whole, shards: Shards, dtype: torch.dtype | None) -> Planned:
    """One of ours. Parts of several types take the one that holds them all; a router's bias stays
    fp32, as it is trained."""
    own = dtype or reduce(
        torch.promote_types, (_readable(shards.stored[part.theirs].dtype) for part in whole.parts)
    )
    if whole.name.endswith("router.bias"):
        own = torch.float32
    return Planned(whole.name, own, whole.shape, partial(_pieces, whole.parts, shards, own))


def _readable(dtype: torch.dtype) -> torch.dtype:
    return torch.bfloat16 if dtype == _FP8 else dtype


def _pieces(
    parts: tuple[ReleasedPart, ...], shards: Shards, dtype: torch.dtype
) -> Iterator[Tensor]:
    for part in parts:
        tensor = shards.read(part.theirs)
        if tensor.dtype == _FP8:
            yield dequantize_blocks(tensor, shards.read(part.theirs + _SCALE), dtype)
        else:
            yield tensor.to(dtype)


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
    planned = [
        _planned_theirs(part, held, dtype) for whole in tensors(model) for part in whole.parts
    ]
    with staged(target) as folder:
        write(folder, planned)
        write_json(folder / CONFIG, config | {"torch_dtype": str(main).removeprefix("torch.")})
        copy_companions(source, folder)
    return Done(model, len(planned), sum(one.bytes for one in planned), ())


def _kept_ones(
    shapes: dict[str, tuple[int, ...]], held: Shards | Trained
) -> dict[str, tuple[int, ...]]:
    """A trainer's state dict names the tied head, too."""
    both = "head.weight" not in shapes and isinstance(held, Trained)
    return {**shapes, "head.weight": shapes["embedding.weight"]} if both else shapes


def _planned_theirs(
    part: ReleasedPart, held: Shards | Trained, dtype: torch.dtype | None
) -> Planned:
    bias = part.theirs.endswith("e_score_correction_bias")
    own = held.stored[part.ours].dtype if bias or dtype is None else dtype
    return Planned(part.theirs, own, part.shape, partial(_piece, part, held, own))


def _piece(part: ReleasedPart, held: Shards | Trained, dtype: torch.dtype) -> Iterator[Tensor]:
    yield held.rows(part.ours, part.expert, part.first_row, part.shape[0]).to(dtype)


def copy_companions(source: Path, target: Path) -> None:
    """Copy those that are there."""
    for name in TABLES["companions"]:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
