"""The weights that a run begins with, where they are another run's.

Parameters and router biases are taken, bit for bit where both runs have one precision; the
optimizer begins anew, its fp32 masters from these weights, as with any released model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from reference.checkpoint import MANIFEST, Checkpoint, DamagedError, Piece, load_tensors, newest
from reference.checkpoint import read as read_checkpoint
from reference.model import Transformer
from reference.text.prepare import Prepared
from reference.trainer.folder import CHECKPOINTS
from reference.trainer.weights import weights_of
from twin.errors import Problem, UsageError
from twin.spec.model import ModelSpec

_SHOWN = 4
"""Tensors named in one message."""
_PATH = "start"


@dataclass(frozen=True, slots=True)
class Start:
    """A checkpoint to take weights from."""

    checkpoint: Checkpoint

    @property
    def text(self) -> str:
        """What tells the tokens of its run from others."""
        loader = self.checkpoint.facts["loader"]
        return loader.get("text", loader["tokens"])

    @torch.no_grad()
    def put(self, parts: Mapping[int, Transformer]) -> None:
        """Its numbers into the parameters and router biases that are here."""
        wanted = {
            name: piece for part in parts.values() for name, piece in weights_of(part).items()
        }
        kinds = {name: getattr(torch, self.checkpoint.shapes[name][0]) for name in wanted}
        read = {
            name: Piece(torch.empty_like(one.tensor, dtype=kinds[name]), one.offset, one.shape)
            for name, one in wanted.items()
        }
        load_tensors(self.checkpoint, read)
        for name, one in wanted.items():
            one.tensor.copy_(read[name].tensor)

    def refuse_other_text(self, text: Prepared) -> None:
        """Raises UsageError TW604 where the tokens were made of another text or by another
        tokenizer: ids would mean something else."""
        if text.training.digest != self.text:
            message = (
                f"the run read other tokens (`{self.text}`, of `data` now "
                f"`{text.training.digest}`), so that ids may mean something else"
            )
            raise UsageError([Problem("TW604", "data", message, "give `data` as that run had it")])


def read_start(folder: Path, model: ModelSpec) -> Start:
    """The newest intact checkpoint of a run's folder, or the one that the folder is.

    Raises UsageError: TW602 where there is none, TW603 where its weights are not those of `model`.
    """
    checkpoint = _checkpoint(folder)
    whole = Transformer(model, device="meta").state_dict()
    here = {f"model/{name}": tuple(tensor.shape) for name, tensor in whole.items()}
    there = {
        name: shape for name, (_, shape) in checkpoint.shapes.items() if name.startswith("model/")
    }
    wrong = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if wrong:
        shown = ", ".join(
            f"`{name.removeprefix('model/')}` {_size(there.get(name))} -> {_size(here.get(name))}"
            for name in wrong[:_SHOWN]
        )
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        message = f"`{folder}` holds the weights of another model: {shown}{more}"
        raise UsageError([Problem("TW603", _PATH, message, "give `model` as that run had it")])
    return Start(checkpoint)


def _checkpoint(folder: Path) -> Checkpoint:
    if (folder / MANIFEST).is_file():
        try:
            return read_checkpoint(folder)
        except DamagedError as damage:
            message = f"`{folder}` is refused: {damage}"
            raise UsageError([Problem("TW602", _PATH, message)]) from None
    found, refused = newest(folder / CHECKPOINTS)
    if found is None:
        message = f"`{folder}` holds no intact checkpoint to start from"
        fix = "name the folder of a run, `train.output`, that has written one"
        raise UsageError([*refused, Problem("TW602", _PATH, message, fix)])
    return found


def _size(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else "x".join(map(str, shape)) or "scalar"
