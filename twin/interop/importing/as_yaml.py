"""Imported models and launches as YAML: the text of a catalog part, or of a scenario. Defaults are
left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import BaseModel

from twin.arch.count import parameters
from twin.errors import printable
from twin.interop.importing.launch import Launch
from twin.loading import catalog_parts, load_part
from twin.spec.model import ModelSpec

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")
_RESERVED = re.compile(r"(?i)true|false|null|yes|no|on|off|[-+.0-9e_]+")
_CHOICES = ("schedule", "optimizer", "routing")
"""Fields that hold one of several kinds; what has no settings is written by its name."""


def catalog_part(model: ModelSpec, origin: str) -> str:
    """YAML of the model, without defaults; `origin` is the file it was read from."""
    total = parameters(model).total
    head = (f"# Imported from {printable(origin)}: {total:,} parameters.", "source: hf-config")
    fields = model.model_dump(mode="json", exclude_defaults=True)
    return "".join(f"{line}\n" for line in (*head, "kind: datasheet", *_lines(fields)))


def scenario_text(
    launch: Launch, cluster: Mapping[str, Any], origin: str, form: str = "megatron"
) -> str:
    """YAML of the scenario; `origin` is the file that the launch was read from, and `form` its
    format."""
    document = {"schema": 1, "name": launch.name, **sections(launch, cluster)}
    head = [f"# Imported from {printable(origin)} by `twin import {form}`."]
    if launch.remarks:
        head += ["#", "# Left out or assumed:"]
        head += [f"# - {printable(remark)}" for remark in launch.remarks]
    return "".join(f"{line}\n" for line in (*head, *_lines(document)))


def sections(launch: Launch, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The sections as plain values, without defaults."""
    train = _fields(launch.train)
    train["global_batch"] = f"{launch.train.global_batch_sequences}seq"
    memory = _fields(launch.memory)
    return {
        "model": _model(launch.model),
        "cluster": dict(cluster),
        "parallel": _fields(launch.parallel),
        **({"memory": memory} if memory else {}),
        "train": train,
        "software": launch.software,
        **({"rl": launch.rl} if launch.rl else {}),
    }


def _model(model: ModelSpec) -> str | dict[str, Any]:
    """The model's name, where the catalog has the same; else its fields."""
    known = model.name in catalog_parts("models")
    same = known and load_part("models", model.name).spec == model
    return model.name if same else _fields(model)


def _fields(section: BaseModel) -> dict[str, Any]:
    found: dict[str, Any] = section.model_dump(mode="json", exclude_defaults=True)
    for key in _CHOICES:
        if key in found:
            kind = getattr(section, key).kind
            settings = {name: value for name, value in found[key].items() if name != "kind"}
            found[key] = {"kind": kind, **settings} if settings else kind
    return found


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    for key, value in document.items():
        if not isinstance(value, dict):
            yield f"{key}: {_flow(value)}"
            continue
        yield f"{key}:"
        fields = cast("dict[str, Any]", value)
        yield from (f"  {name}: {_flow(one)}" for name, one in fields.items())


def _flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return f"{{{', '.join(f'{name}: {_flow(one)}' for name, one in fields.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_flow(one) for one in cast('list[Any]', value))}]"
    plain = isinstance(value, str) and _PLAIN.fullmatch(value) and not _RESERVED.fullmatch(value)
    return str(value) if plain else json.dumps(value, ensure_ascii=not str(value).isprintable())
