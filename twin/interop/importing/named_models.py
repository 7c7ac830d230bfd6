"""The catalog model that another program's name means (`named_models.yaml`), or that whoever asks
names or brings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from twin.interop.importing.hf_config import read_hf_config
from twin.interop.importing.keys import Keys
from twin.interop.tables import ask
from twin.loading import catalog_parts, load_part
from twin.loading.files import read_data
from twin.spec.model import ModelSpec

_FURTHER: Final = re.compile(r"-(instruct|base|chat|hf|it|math|thinking|\d{4}|config[\w-]*)$")
"""Ends of names that say how a model was trained further, or that its file was changed."""


def model_called(name: str) -> ModelSpec | None:
    """The catalog's model of a name or path of another program; None where there is none."""
    word = name.strip().rstrip("/").lower()
    for known in (word, word.rpartition("/")[2]):
        short = known
        while True:
            if found := _names().get(short):
                return load_part("models", found).spec
            shorter = _FURTHER.sub("", short)
            if shorter == short:
                break
            short = shorter
    return None


def model_named_at(keys: Keys, key: str) -> ModelSpec | None:
    """The catalog's model that a key names; asked for where there is none."""
    name = keys.get(key)
    found = model_called(str(name)) if name else None
    if found is None:
        said = f"the catalog has no model of the name `{name}`" if name else "nothing names a model"
        ask(keys, key, said, "--architecture NAME or its config.json")
    return found


def flavor_of(model: ModelSpec) -> str | None:
    """torchtitan's `name/flavor` of a catalog model."""
    own = read_data(Path(__file__).with_name("named_models.yaml")).get(model.name, ())
    return next((name for name in own if "/" in name), None)


def model_of(asked: str) -> ModelSpec:
    """A model of the catalog, or that of a `config.json`. Raises `UsageError` where there is
    neither."""
    path = Path(asked)
    if asked in catalog_parts("models") or path.suffix != ".json":
        return load_part("models", asked).spec
    stem = path.absolute().parent.name if path.stem == "config" else path.stem
    return read_hf_config(path, stem).model


@cache
def _names() -> dict[str, str]:
    data = read_data(Path(__file__).with_name("named_models.yaml"))
    return {
        name: model for model, names in data.items() for name in (model, *map(str.lower, names))
    }
