"""JSON schemas (draft 2020-12) as a tree of what may be written.

The tree is never wider than the schema, and may be narrower, all OURS: a key that an object does
not declare is written only where it declares none; a schema without `type` that has `properties` or
`items` is that type; any value nests at most `DEPTH` deep. `format` asserts nothing, as the draft
has it by default (section 7.2.1). A keyword that is not known here is refused by name: to leave it
out would make what does not validate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from reference.inference.grammar.error import SchemaError
from reference.inference.grammar.references import inlined

DEPTH: Final = 6
"""Levels of arrays and objects where a schema allows any value."""
_NOTES: Final = frozenset(
    {
        *("title", "description", "default", "examples", "format", "deprecated"),
        *("readOnly", "writeOnly", "$schema", "$comment", "$id"),
    }
)
"""Keywords that assert nothing."""
_OF_TYPE: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength"}),
    "number": frozenset(),
    "integer": frozenset(),
    "boolean": frozenset(),
    "null": frozenset(),
}


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """One of these texts."""

    options: frozenset[bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A string of `least` to `most` characters."""

    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A number, or a whole one."""

    whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """A list of `least` to `most` items."""

    items: Node
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Object:
    """Declared keys in any order, each at most once, the required ones surely."""

    properties: tuple[tuple[str, Node], ...]
    required: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Free:
    """Any keys, with such values."""

    values: Node


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """One of several."""

    options: tuple[Node, ...]


Node = Words | Text | Number | Array | Object | Free | Either


def read_schema(schema: Any) -> Node:
    """The tree of a schema. Raises SchemaError for a keyword that is not supported, a value that
    it cannot have, or a schema that nothing fulfils."""
    return _read(inlined(schema), "")


def _read(schema: Any, path: str) -> Node:
    if schema is True:
        return any_value(DEPTH)
    if not isinstance(schema, Mapping):
        raise SchemaError(path, "", "must be an object; `false` allows nothing")
    known = cast("Mapping[str, Any]", schema)
    keys = set(known) - _NOTES
    if keys & {"enum", "const"}:
        _refuse(keys - {"enum", "const", "type"}, path, "beside `enum` or `const`")
        return _listed(known, path)
    if "anyOf" in keys:
        _refuse(keys - {"anyOf"}, path, "beside `anyOf`")
        several = _list(known, "anyOf", path)
        return Either(tuple(_read(one, f"{path}.anyOf") for one in several))
    types = _types(known, keys, path)
    allowed = frozenset({"type"}).union(*(_OF_TYPE[one] for one in types or _OF_TYPE))
    _refuse(keys - allowed, path, "")
    if not types:
        return any_value(DEPTH)
    options = tuple(_typed(kind, known, path) for kind in types)
    return options[0] if len(options) == 1 else Either(options)


@cache
def any_value(depth: int) -> Node:
    """Any JSON value of at most so many levels."""
    plain: tuple[Node, ...] = (
        Text(),
        Number(whole=False),
        Words(frozenset({b"true", b"false", b"null"})),
    )
    if depth == 0:
        return Either(plain)
    return Either((*plain, Array(any_value(depth - 1)), Free(any_value(depth - 1))))


def spelled(value: Any) -> bytes:
    """A value as it is written."""
    return json.dumps(value, ensure_ascii=False).encode()


def _refuse(keys: set[str], path: str, where: str) -> None:
    if keys:
        keyword = min(keys)
        raise SchemaError(
            f"{path}.{keyword}".strip("."), keyword, f"`{keyword}` is not supported {where}".strip()
        )


def _types(schema: Mapping[str, Any], keys: set[str], path: str) -> tuple[str, ...]:
    """The types that a schema names, or the one that its keywords mean; none for any value."""
    if "type" not in keys:
        return next(
            ((kind,) for kind in ("object", "array", "string") if keys & _OF_TYPE[kind]), ()
        )
    said = schema["type"]
    types = (said,) if isinstance(said, str) else tuple(said) if isinstance(said, list) else ()
    if not types or any(one not in _OF_TYPE for one in types):
        raise SchemaError(f"{path}.type", "type", f"{said!r} is no type")
    return types


def _typed(kind: str, schema: Mapping[str, Any], path: str) -> Node:
    match kind:
        case "object":
            return _object(schema, path)
        case "array":
            items = _read(schema.get("items", True), f"{path}.items")
            return Array(items, *_bounds(schema, "minItems", "maxItems", path))
        case "string":
            return Text(*_bounds(schema, "minLength", "maxLength", path))
        case "number" | "integer":
            return Number(kind == "integer")
        case "boolean":
            return Words(frozenset({b"true", b"false"}))
        case _:
            return Words(frozenset({b"null"}))


def _object(schema: Mapping[str, Any], path: str) -> Node:
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise SchemaError(f"{path}.properties", "properties", "must be an object")
    made = tuple((key, _read(one, f"{path}.properties.{key}")) for key, one in properties.items())
    required = frozenset[str](_list(schema, "required", path) if "required" in schema else ())
    if missing := sorted(required - {key for key, _ in made}):
        message = f"`{missing[0]}` is required and has no schema in `properties`"
        raise SchemaError(f"{path}.required", "required", message)
    more = schema.get("additionalProperties", True)
    if made or more is False:
        return Object(made, required)
    return Free(_read(more, f"{path}.additionalProperties"))


def _listed(schema: Mapping[str, Any], path: str) -> Node:
    """`enum` and `const`, less what `type` rules out."""
    values = _list(schema, "enum", path) if "enum" in schema else [schema["const"]]
    if "const" in schema:
        values = [one for one in values if spelled(one) == spelled(schema["const"])]
    types = _types(schema, {"type"} & set(schema), path)
    fitting = [one for one in values if not types or any(_is(one, kind) for kind in types)]
    if not fitting:
        raise SchemaError(f"{path}.enum", "enum", "no value fits")
    return Words(frozenset(spelled(one) for one in fitting))


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and kind == "integer":
        return value.is_integer()
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}
    return value is None if kind == "null" else kind in kinds and isinstance(value, kinds[kind])


def _bounds(schema: Mapping[str, Any], low: str, high: str, path: str) -> tuple[int, int | None]:
    least, most = schema.get(low, 0), schema.get(high)
    for keyword, value in ((low, least), (high, most)):
        if value is not None and (type(value) is not int or value < 0):
            raise SchemaError(f"{path}.{keyword}", keyword, "must be a whole number, at least 0")
    if most is not None and most < least:
        raise SchemaError(f"{path}.{high}", high, f"is less than `{low}`")
    return least, most


def _list(schema: Mapping[str, Any], keyword: str, path: str) -> list[Any]:
    found = schema[keyword]
    if not isinstance(found, list) or (not found and keyword != "required"):
        raise SchemaError(f"{path}.{keyword}", keyword, "must be a list that is not empty")
    return found
