"""The weights that a run begins with, where they are another run's.

Parameters and router biases are taken, bit for bit where both runs have one precision; the
optimizer begins anew, its fp32 masters from these weights, as with any released model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from reference.checkpoint.folder import IntactCheckpoint, load_tensors
from reference.checkpoint.piece import Piece, piece_of
from reference.model import Transformer
from reference.model.part import ModelPart
from reference.optim.blocks import is_expert
from reference.text.prepare import Prepared
from reference.trainer.settings import checkpoint_of
from twin.errors import Problem, UsageError
from twin.spec.model import ModelSpec

T = TypeVar("T")
PREFIX = "model/"
"""Of the names of weights in a checkpoint."""


def weights_of(model: Transformer) -> dict[str, Piece]:
    """Parameters and router biases of a model, or of a part of one, as pieces of the whole model's
    tensors."""
    return {
        PREFIX + name: _placed(model.part, name, tensor)
        for name, tensor in model.state_dict().items()
    }


def _placed(part: ModelPart, name: str, tensor: Tensor) -> Piece:
    """A parameter, or a state of one, in the whole model's: of experts [E, ...] a rank has some, in
    a row."""
    if not is_expert(name) or tensor.dim() == 0:
        return piece_of(tensor)
    here, *rest = tensor.shape
    offset = part.expert_rank * tensor.numel()
    return piece_of(tensor, offset, (here * part.expert_ranks, *rest))


def read_start(folder: Path, model: ModelSpec) -> IntactCheckpoint:
    """The newest intact checkpoint of a run's folder, or the checkpoint at the folder.

    Raises UsageError: TW602 where there is none, TW603 where its weights are not those of `model`.
    """
    fix = "name the folder of a run, `train.output`, that has written one"
    checkpoint = checkpoint_of(folder, "TW602", "start", fix)
    whole = Transformer(model, device="meta").state_dict()
    here = {name: tuple(tensor.shape) for name, tensor in whole.items()}
    there = {
        name.removeprefix(PREFIX): shape
        for name, (_, shape) in checkpoint.shapes.items()
        if name.startswith(PREFIX)
    }
    if wrong := differences(there, here, _size, 4):
        message = f"`{folder}` holds the weights of another model: {wrong}"
        raise UsageError([Problem("TW603", "start", message, "give `model` as that run had it")])
    return checkpoint


@torch.no_grad()
def copy_weights(checkpoint: IntactCheckpoint, parts: Mapping[int, Transformer]) -> None:
    """The checkpoint's numbers into the parameters and router biases that are here."""
    wanted = {name: piece for part in parts.values() for name, piece in weights_of(part).items()}
    kinds = {name: getattr(torch, checkpoint.shapes[name][0]) for name in wanted}
    read = {
        name: Piece(torch.empty_like(piece.tensor, dtype=kinds[name]), piece.offset, piece.shape)
        for name, piece in wanted.items()
    }
    load_tensors(checkpoint, read)
    for name, piece in wanted.items():
        piece.tensor.copy_(read[name].tensor)


def refuse_other_text(checkpoint: IntactCheckpoint, text: Prepared) -> None:
    """Raises UsageError TW604 where the tokens were made of another text or by another tokenizer:
    ids would mean something else."""
    loader = checkpoint.facts["loader"]
    before, now = loader.get("text", loader["tokens"]), text.training.digest
    if now != before:
        message = (
            f"the run read other tokens (`{before}`, of `data` now `{now}`), so that ids may mean "
            "something else"
        )
        raise UsageError([Problem("TW604", "data", message, "give `data` as that run had it")])


def differences(
    there: Mapping[str, T], here: Mapping[str, T], show: Callable[[T | None], str], most: int
) -> str:
    """The first `most` names whose values differ, with both values; empty where all are equal."""
    wrong = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    shown = [f"`{name}` {show(there.get(name))} -> {show(here.get(name))}" for name in wrong[:most]]
    more = f", and {len(wrong) - most} more" if len(wrong) > most else ""
    return ", ".join(shown) + more


def _size(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else "x".join(map(str, shape)) or "scalar"
