"""The model in a trainer's checkpoint, under the same reading as a folder of safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from reference.checkpoint.folder import (
    MANIFEST,
    IntactCheckpoint,
    load_tensors,
)
from reference.checkpoint.piece import piece_of
from reference.config import RunSpec, load_run
from reference.convert.shards import Stored
from reference.trainer.settings import CHECKPOINTS, CONFIG, checkpoint_of
from reference.trainer.stages import stages_of
from reference.trainer.start import PREFIX
from twin.errors import Problem, UsageError
from twin.spec.model import ModelSpec


def is_trained(folder: Path) -> bool:
    """Whether a folder is a checkpoint, or a run that has some."""
    return (folder / MANIFEST).is_file() or (folder / CHECKPOINTS).is_dir()


def config_of(folder: Path) -> Path:
    """The file that says what a run was, by the run's folder or by one of its checkpoints, which
    lie two folders below; whether it is there is another question."""
    home = folder.absolute().parent.parent if (folder / MANIFEST).is_file() else folder
    return home / CONFIG


def begun_from(start: str, fix: str) -> RunSpec:
    """What the run was whose weights another one begins with. Raises UsageError TW602, with the
    `fix`, where there is none."""
    config = config_of(Path(start))
    if not config.is_file():
        message = f"`{Path(start)}` is no run of `python -m reference.train`"
        raise UsageError([Problem("TW602", "start", message, fix)])
    return load_run(config)


class Trained:
    """A checkpoint's model; the newest intact one of a run.

    Raises UsageError TW258 where none is intact.
    """

    def __init__(self, folder: Path) -> None:
        self._checkpoint = checkpoint_of(folder, "TW258")
        self.stored: Mapping[str, Stored] = {
            name.removeprefix(PREFIX): Stored(getattr(torch, kind), shape)
            for name, (kind, shape) in self._checkpoint.shapes.items()
            if name.startswith(PREFIX)
        }
        self.model = _stretched(self._checkpoint)
        self._last: tuple[str, Tensor] | None = None

    def read(self, name: str) -> Tensor:
        """A tensor. The last one stays, since its parts are asked for one after another."""
        if self._last is None or self._last[0] != name:
            self._last = None
            held = self.stored[name]
            tensor = torch.empty(held.shape, dtype=held.dtype)
            load_tensors(self._checkpoint, {PREFIX + name: piece_of(tensor)})
            self._last = (name, tensor)
        return self._last[1]

    def rows(self, name: str, expert: int | None, first: int, count: int) -> Tensor:
        """Some rows of a tensor, or of one matrix of a stack."""
        tensor = self.read(name)
        return (tensor if expert is None else tensor[expert])[first : first + count]


def _stretched(checkpoint: IntactCheckpoint) -> ModelSpec:
    """The model with the positions of the stage that made the checkpoint's last step."""
    try:
        run = RunSpec.model_validate(dict(checkpoint.config))
    except ValidationError:
        message = f"`{checkpoint.path}` was written by a version with another configuration"
        raise UsageError([Problem("TW258", "", message)]) from None
    stages = stages_of(run)
    # Checkpoints of `reference.rl` count places to stop at, of which there are more than steps.
    stage = next((one for one in stages if checkpoint.step <= one.end), stages[-1])
    return run.model.model_copy(update={"rope": stage.rope})
