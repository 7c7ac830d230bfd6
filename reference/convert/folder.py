"""A model of the reference in a folder of its own: `model.yaml`, which is a catalog model, and
safetensors with the reference's names.

    model.yaml            the architecture
    model*.safetensors    the tensors of `Transformer.state_dict`
    kept.json             where it came from Hugging Face: keys of config.json that are no field
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from ruamel.yaml import YAML
from torch import Tensor

from reference.convert.names import Whole, tensors
from reference.convert.shards import Planned, Shards, Stored, staged, write, write_json
from reference.model import Transformer
from twin.errors import Problem, UsageError
from twin.loading.config import load_config
from twin.spec.model import ModelSpec

MODEL: Final = "model.yaml"
KEPT: Final = "kept.json"
_SHOWN: Final = 8
"""Tensors named in one message."""


def save(model: Transformer, folder: Path) -> None:
    """Write a model's weights and architecture. Raises UsageError TW256 where `folder` exists."""
    state = model.state_dict()
    planned = [
        Planned(
            whole.name, state[whole.name].dtype, whole.shape, lambda t=whole.name: _one(state[t])
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


def _one(tensor: Tensor) -> Iterator[Tensor]:
    yield tensor
