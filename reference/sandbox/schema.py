"""Arguments of tools checked against a JSON schema, with errors that a model can act on.

A subset of JSON Schema 2020-12: the keywords of tool declarations. Other keywords are refused when
a tool is declared, since ignoring a keyword would accept wrong arguments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import regex

from twin.errors import Problem, ScenarioError

MATCH_S: Final = 1.0
"""Seconds after which a pattern that goes back and forth in a text is given up. OURS."""


def _matches(value: str, bound: str) -> bool:
    """Whether a text has a pattern. Raises TimeoutError."""
    return regex.search(bound, value, timeout=MATCH_S, concurrent=True) is not None


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    # JSON has one kind of number, so 1.0 is an integer.
    "integer": lambda value: (
        not isinstance(value, bool)
        and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool], str]] = {
    "minimum": ("number", lambda value, bound: value >= bound, "must be at least {}"),
    "maximum": ("number", lambda value, bound: value <= bound, "must be at most {}"),
    "exclusiveMinimum": ("number", lambda value, bound: value > bound, "must be above {}"),
    "exclusiveMaximum": ("number", lambda value, bound: value < bound, "must be below {}"),
    "minLength": ("string", lambda value, bound: len(value) >= bound, "needs {} characters"),
    "maxLength": ("string", lambda value, bound: len(value) <= bound, "may have {} characters"),
    "pattern": ("string", _matches, "must match {}"),
    "minItems": ("array", lambda value, bound: len(value) >= bound, "needs {} items"),
    "maxItems": ("array", lambda value, bound: len(value) <= bound, "may have {} items"),
}
_SHAPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), ("integer",)),
    **{key: ("number",) for key in _BOUNDS if key.endswith("imum")},
    **dict.fromkeys(("enum", "required", "anyOf"), ("array",)),
    "type": ("string", "array"),
    "pattern": ("string",),
    "properties": ("object",),
}
"""The types that the value of a keyword may have."""
MOST_LEVELS = 64
"""Levels of a schema. OURS."""
_NOTES = {"title", "description", "default", "examples", "format", "$schema"}
_NESTED = {"type", "enum", "const", "properties", "required", "additionalProperties", "items"}


def text_arguments(**descriptions: str) -> dict[str, Any]:
    """The schema of arguments that are all required texts."""
    return {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": about} for name, about in descriptions.items()
        },
        "required": list(descriptions),
        "additionalProperties": False,
    }


def read_arguments(text: str, schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments that a model wrote, and the errors in them."""
    try:
        arguments = json.loads(text or "{}", parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        return {}, [f"the arguments are no JSON: {error}"]
    if not isinstance(arguments, dict):
        return {}, ["the arguments must be a JSON object"]
    try:
        errors = list(errors_of(arguments, schema))
    except TimeoutError:
        errors = [f"a pattern of the schema takes longer than {MATCH_S:g} s on this text"]
    try:
        "".join(value for value in arguments.values() if isinstance(value, str)).encode()
    except UnicodeEncodeError as error:
        errors.append(f"the text is not Unicode: {error.reason}")  # half of a surrogate pair
    return arguments, errors


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def check_schema(schema: Any, path: str, levels: int = MOST_LEVELS) -> None:
    """Raises ScenarioError (TW545) for a schema with unknown keywords or types, or one with values
    of the wrong type or more levels."""
    if levels == 0:
        raise _refused(path[:200], f"a schema may have {MOST_LEVELS} levels")
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _refused(path, f"a schema is an object, not {schema!r}")
    _check_keywords(schema, path)
    for name, inner in schema.get("properties", {}).items():
        check_schema(inner, f"{path}.properties.{name}", levels - 1)
    for key in ("items", "additionalProperties"):
        check_schema(schema.get(key, True), f"{path}.{key}", levels - 1)
    for at, inner in enumerate(schema.get("anyOf", ())):
        check_schema(inner, f"{path}.anyOf.{at}", levels - 1)


def _check_keywords(schema: Mapping[str, Any], path: str) -> None:
    for key in schema:
        if key not in {*_BOUNDS, *_NOTES, *_NESTED, "anyOf"}:
            raise _refused(f"{path}.{key}", "this keyword of JSON Schema is not understood")
        shapes = _SHAPES.get(key, ())
        if shapes and not any(_TYPES[shape](schema[key]) for shape in shapes):
            raise _refused(f"{path}.{key}", f"must be {' or '.join(shapes)}")
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if not isinstance(kind, str) or kind not in _TYPES:
            raise _refused(f"{path}.type", f"`{kind}` is no type")
    try:
        regex.compile(schema.get("pattern", ""))
    except (regex.error, RecursionError, OverflowError) as error:
        raise _refused(f"{path}.pattern", f"is no regular expression: {error}") from None


def _refused(path: str, message: str) -> ScenarioError:
    known = ", ".join(sorted({*_BOUNDS, *_NESTED, "anyOf"}))
    return ScenarioError([Problem("TW545", path, message, f"known: {known}")])


def errors_of(value: Any, schema: Any, path: str = "arguments") -> Iterator[str]:
    """The errors of the value, each with its place; none if it fits. Raises TimeoutError where a
    pattern takes too long."""
    if isinstance(schema, bool):
        if not schema:
            yield f"{path}: nothing may stand here"
        return
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        yield f"{path}: must be {' or '.join(kinds)}, not {_kind(value)}"
        return
    yield from _plain_errors(value, schema, path)
    if "anyOf" in schema and all(any(errors_of(value, form, path)) for form in schema["anyOf"]):
        yield f"{path}: fits none of the {len(schema['anyOf'])} forms that are allowed"
    if isinstance(value, dict):
        yield from _object_errors(value, schema, path)
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from errors_of(item, schema.get("items", True), f"{path}[{at}]")


def _plain_errors(value: Any, schema: Any, path: str) -> Iterator[str]:
    """Errors by keywords on the value as a whole."""
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        yield f"{path}: must be one of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{path}: must be {schema['const']!r}"
    for key, (kind, holds, words) in _BOUNDS.items():
        if key in schema and _TYPES[kind](value) and not holds(value, schema[key]):
            yield f"{path}: {words.format(schema[key])}"


def _object_errors(value: Mapping[str, Any], schema: Any, path: str) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: is missing"
    for name, inner in value.items():
        if name not in properties and others is False:
            yield f"{path}.{name}: is not known; known: {', '.join(properties) or 'none'}"
        else:
            yield from errors_of(inner, properties.get(name, others), f"{path}.{name}")


def _same(value: Any, other: Any) -> bool:
    """JSON equality, where true is not 1."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(value[key], other[key]) for key in value)
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _kind(value: Any) -> str:
    return next(kind for kind in ("integer", *_TYPES) if _TYPES[kind](value))
