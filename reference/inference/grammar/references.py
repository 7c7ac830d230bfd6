"""Schemas without `$ref`: what `#/$defs/NAME` or `#/definitions/NAME` names is put in its place
(JSON Schema draft 2020-12, sections 8.2.3 and 8.2.4). A definition that holds itself has no finite
tree and is refused, as is any other address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from reference.inference.grammar.error import SchemaError

_DEFINITIONS: Final = ("$defs", "definitions")
_LOCAL: Final = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
_VALUES: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are no schemas."""


def inlined(schema: Any) -> Any:
    """The schema, each reference replaced. Raises SchemaError for one that cannot be."""
    if not isinstance(schema, Mapping):
        return schema
    places = {name: schema.get(name, {}) for name in _DEFINITIONS}
    return _inlined({k: v for k, v in schema.items() if k not in _DEFINITIONS}, "", places, ())


def _inlined(schema: Any, path: str, places: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_inlined(one, path, places, within) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        found = _named(schema["$ref"], path, places, within)
        more = {key: value for key, value in schema.items() if key != "$ref"}
        asserting = set(more) - {"title", "description", "default", "examples", "$comment"}
        if asserting:
            keyword = min(asserting)
            raise SchemaError(f"{path}.{keyword}", keyword, f"`{keyword}` stands beside `$ref`")
        return _inlined(found, path, places, (*within, schema["$ref"]))
    return {
        key: value if key in _VALUES else _part(key, value, f"{path}.{key}", places, within)
        for key, value in schema.items()
    }


def _part(
    key: str, value: Any, path: str, places: Mapping[str, Any], within: tuple[str, ...]
) -> Any:
    """What stands under a keyword; under `properties` keys are names, whatever they spell."""
    if key == "properties" and isinstance(value, Mapping):
        return {
            name: _inlined(one, f"{path}.{name}", places, within) for name, one in value.items()
        }
    return _inlined(value, path, places, within)


def _named(address: Any, path: str, places: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    where = f"{path}.$ref"
    local = _LOCAL.fullmatch(address) if isinstance(address, str) else None
    if local is None or not isinstance(places[local[1]], Mapping):
        message = "only `#/$defs/NAME` and `#/definitions/NAME` are followed"
        raise SchemaError(where, "$ref", message)
    if address in within:
        raise SchemaError(where, "$ref", f"`{address}` holds itself, without an end")
    if local[2] not in places[local[1]]:
        raise SchemaError(where, "$ref", f"there is no `{address}`")
    return places[local[1]][local[2]]
