"""Finding one's way in a JSON Schema of nested sections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias, cast

Json: TypeAlias = dict[str, Any]
"""A JSON object."""

SOURCED: Final = "Sourced"
"""Name of the definition of a number that says where it comes from."""


def choices(field: Json) -> list[Json]:
    """The schemas of which a value satisfies one: the field's own where there are no others."""
    return field.get("anyOf") or field.get("oneOf") or [field]


def reference(schema: Json) -> str | None:
    """The name of the definition that a schema refers to; None where it refers to none."""
    found = schema.get("$ref")
    return str(found).rpartition("/")[2] if found else None


def members(root: Json, field: Json) -> list[Json]:
    """The sections that a field may hold; where there are several, their `kind` tells them
    apart."""
    names = (reference(one) for one in choices(field))
    return [root["$defs"][name] for name in names if name not in (None, SOURCED)]


def field_at(root: Json, path: tuple[str, ...]) -> Json:
    """The schema of the field at a path, through fields that hold one section each."""
    section = root
    for key in path[:-1]:
        (section,) = members(root, section["properties"][key])
    return section["properties"][path[-1]]


def sections(root: Json) -> list[Json]:
    """The root, and every definition that has keys."""
    return [root, *(one for one in root["$defs"].values() if "properties" in one)]


def nodes(schema: Any) -> Iterator[Json]:
    """Every object in a schema, outer ones first."""
    if isinstance(schema, dict):
        found = cast(Json, schema)
        yield found
        for value in found.values():
            yield from nodes(value)
    elif isinstance(schema, list):
        for item in cast(list[Any], schema):
            yield from nodes(item)
