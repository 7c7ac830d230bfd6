"""A model as the text of a catalog part, which a scenario beside it may name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from twin.arch import parameters
from twin.errors import printable
from twin.spec.model import ModelSpec

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_RESERVED = ("true", "false", "null", "yes", "no", "on", "off")


def catalog_part(model: ModelSpec, origin: str) -> str:
    """YAML of the model, without what is as by default; `origin` is the file it was read from."""
    total = parameters(model).total
    head = (
        f"# Imported from {printable(origin)}: {total:,} parameters.\n"
        "source: hf-config\nkind: datasheet\n"
    )
    fields: dict[str, Any] = model.model_dump(mode="json", exclude_defaults=True)
    return head + "".join(f"{line}\n" for line in _lines(fields, ""))


def _lines(section: dict[str, Any], indent: str) -> Iterator[str]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(cast("dict[str, Any]", value), f"{indent}  ")
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
    return str(value) if plain else json.dumps(value)
