"""A model of the reference in a folder of its own: `model.yaml`, which is a catalog model, and
safetensors with the reference's names.

    model.yaml            the architecture
    model*.safetensors    the tensors of `Transformer.state_dict`
    kept.json             where it came from Hugging Face: keys of config.json that are no field

The model in a trainer's checkpoint, under the same reading as a folder of safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import ValidationError
from ruamel.yaml import YAML
from torch import Tensor

from reference.checkpoint.folder import MANIFEST, IntactCheckpoint, load_tensors
from reference.checkpoint.piece import piece_of
from reference.config import RunSpec, load_run
from reference.convert.config import Whole, tensors
from reference.convert.shards import Planned, Shards, Stored, staged, write, write_json
from reference.model import Transformer
from reference.trainer.settings import CHECKPOINTS, CONFIG, PREFIX, checkpoint_of
from reference.trainer.stages import stages_of
from twin.errors import Problem, UsageError
from twin.loading.load import load_config
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


MODEL: Final = "model.yaml"
KEPT: Final = "kept.json"
_SHOWN: Final = 8
"""Tensors named in one message."""


def save(model: Transformer, folder: Path) -> None:
    """Write a model's weights and architecture. Raises UsageError TW256 where `folder` exists."""
    state = model.state_dict()
    planned = [
        Planned(
            whole.name, state[whole.name].dtype, whole.shape, lambda t=whole.name: iter([state[t]])
        )
        for whole in tensors(model.spec)
    ]
    with staged(folder) as partial:
        write(partial, planned)
        write_model(partial, model.spec, {})


@torch.no_grad()
def load(
    folder: Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Transformer:
    """The model of a folder, its weights as stored or in `dtype`; read one tensor at a time.

    Raises UsageError TW250, TW253 to TW255, TW258 for a folder that does not hold one, and
    ScenarioError for a model.yaml that is wrong.
    """
    spec, shards = read_model(folder), Shards(folder)
    refuse_other(wanted(tensors(spec)), shards.stored, folder)
    own = dtype or shards.stored["embedding.weight"].dtype
    model = Transformer(spec, device=device, dtype=own)
    state = model.state_dict()
    for whole in tensors(spec):
        state[whole.name].copy_(shards.read(whole.name))
    return model


def read_model(folder: Path) -> ModelSpec:
    """The architecture of a folder. Raises UsageError TW250 where it holds none."""
    if not (folder / MODEL).is_file():
        message = f"`{folder}` holds no `{MODEL}`"
        raise UsageError([Problem("TW250", "", message, "give a folder of the reference")])
    return load_config(ModelSpec, folder / MODEL)


def write_model(folder: Path, model: ModelSpec, kept: Mapping[str, Any]) -> None:
    """Write the architecture, and what was kept of a `config.json`."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    yaml.dump(model.model_dump(mode="json"), folder / MODEL)
    if kept:
        write_json(folder / KEPT, kept)


def read_kept(folder: Path) -> dict[str, Any]:
    """What was kept of a `config.json`; nothing where the model did not come from one."""
    path = folder / KEPT
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def wanted(wholes: Iterable[Whole]) -> dict[str, tuple[int, ...]]:
    """Shapes of our tensors by name."""
    return {whole.name: whole.shape for whole in wholes}


def refuse_other(
    shapes: Mapping[str, tuple[int, ...]], stored: Mapping[str, Stored], folder: Path
) -> None:
    """Raises UsageError that names tensors that are missing (TW253), that nothing wants (TW254) or
    that have another shape (TW255)."""
    found = [
        _named("TW253", "missing", sorted(shapes.keys() - stored.keys())),
        _named("TW254", "not of this model", sorted(stored.keys() - shapes.keys())),
        _named(
            "TW255",
            "of another shape",
            [
                f"{name} {_size(stored[name].shape)} instead of {_size(shape)}"
                for name, shape in shapes.items()
                if name in stored and stored[name].shape != shape
            ],
        ),
    ]
    if problems := [Problem(code, str(folder), text) for code, text in found if text]:
        raise UsageError(problems)


def _named(code: str, what: str, names: Sequence[str]) -> tuple[str, str]:
    if not names:
        return code, ""
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    noun = "tensor is" if len(names) == 1 else "tensors are"
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    return code, f"{len(names):,} {noun} {what}: {shown}{more}"


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a number"
