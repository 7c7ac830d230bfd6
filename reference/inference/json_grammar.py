"""JSON schemas (draft 2020-12) as grammars in the Lark syntax of llguidance.

The grammar is never wider than the schema, and may be narrower, all OURS: an object has only the
keys that it declares, unless it declares none; a schema without `type` that has `properties` or
`items` is that type; a value of any form nests at most `DEPTH` deep; numbers have at most 15 digits
before and after the point and exponents two, so that each is a finite double; one space, or none,
follows `:` and `,`. Keys come in any order, each at most once: a grammar rule carries the keys so
far as bits. `format` asserts nothing, as is the draft's default (section 7.2.1). An unknown keyword
is refused by name: to leave it out would accept what does not validate.

A schema is untrusted text. Its work is bounded before any is done: its text, its depth, its values.
A definition becomes one rule, however often it is referred to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

DEPTH: Final = 6
"""Levels of arrays and objects where a schema allows any value."""
MOST_KEYS: Final = 64
"""Bits of a grammar rule of llguidance."""
MOST_TEXT: Final = 120_000
"""Characters of a schema as JSON: the bound of OpenAI's structured outputs on names and values."""
MOST_LEVELS: Final = 64
"""Levels of a schema and of the definitions that it goes through. OURS; OpenAI's bound is 10."""
MOST_VALUES: Final = 1_000
"""Schemas and options in one schema: OpenAI's bound on options. llguidance's parser follows at
most 2,000 at one place."""
_NOTES: Final = frozenset(
    {
        *("title", "description", "default", "examples", "format", "deprecated"),
        *("readOnly", "writeOnly", "$schema", "$comment", "$id", "$defs", "definitions"),
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
_SCALARS: Final = {
    "number": "NUMBER",
    "integer": "INTEGER",
    "boolean": '("true" | "false")',
    "null": '"null"',
}
_PYTHON: Final = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
_REFERENCE: Final = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
_TERMINALS: Final = r"""
COMMA: /, ?/
COLON: /: ?/
INTEGER: /-?(0|[1-9][0-9]{0,14})/
NUMBER: /-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?/
CHAR: /[^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u([0-9a-cefA-CEF][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{2})/
STRING: "\"" CHAR* "\""
"""


class SchemaError(ValueError):
    """A schema that cannot be enforced: `path` says where, `keyword` which keyword."""

    def __init__(self, path: str, keyword: str, message: str) -> None:
        path = path.strip(".")
        super().__init__(f"{path or 'the schema'}: {message}")
        self.path, self.keyword = path, keyword


def schema_grammar(schema: Any) -> str:
    """The grammar of a schema's values. Raises SchemaError for a keyword that is not supported, a
    value that it cannot have, or a schema that nothing fulfils."""
    _check_size(schema)
    rules = _Rules(schema if isinstance(schema, Mapping) else {})
    return "\n".join([f"start: {rules.value(schema, '')}", *rules.lines, _any_values(), _TERMINALS])


def _check_size(schema: Any) -> None:
    """Raises SchemaError for a schema that is not JSON, too long or too deep."""
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        text.encode()
    except RecursionError:
        raise SchemaError("", "", "nests too deep") from None
    except (TypeError, ValueError) as error:
        raise SchemaError("", "", f"is not JSON: {error}") from None
    if len(text) > MOST_TEXT:
        message = f"has {len(text):,} characters; at most {MOST_TEXT:,} are allowed"
        raise SchemaError("", "", message)


def choice_grammar(options: Iterable[str]) -> str:
    """The grammar of one of several texts."""
    return f"start: {_one_of(options)}"


class _Rules:
    """The rules of one schema; methods return the expression that stands for a value."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.lines: list[str] = []
        self._definitions = {key: root.get(key, {}) for key in ("$defs", "definitions")}
        self._known: dict[str, str | None] = {}
        """Expressions of definitions by address; None while a definition is open."""
        self._values = self._level = 0

    def value(self, schema: Any, path: str) -> str:
        """Any schema."""
        self._count(1, path)
        if self._level == MOST_LEVELS:
            raise SchemaError(path, "", f"nests deeper than {MOST_LEVELS} levels")
        self._level += 1
        found = self._value(schema, path)
        self._level -= 1
        return found

    def _count(self, values: int, path: str) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise SchemaError(path, "", f"more than {MOST_VALUES:,} values in one schema")

    def _value(self, schema: Any, path: str) -> str:
        if schema is True:
            return f"any{DEPTH}"
        if not isinstance(schema, Mapping):
            raise SchemaError(path, "", "must be an object; `false` allows nothing")
        keys = set(schema) - _NOTES
        if "$ref" in keys:
            _refuse(keys - {"$ref"}, path, "beside `$ref`")
            return self._referred(schema["$ref"], f"{path}.$ref", path)
        if keys & {"enum", "const"}:
            _refuse(keys - {"enum", "const", "type"}, path, "beside `enum` or `const`")
            values = _listed(schema, path)
            self._count(len(values), path)
            return _one_of(values)
        if "anyOf" in keys:
            _refuse(keys - {"anyOf"}, path, "beside `anyOf`")
            several = _list(schema, "anyOf", path)
            return self._rule(" | ".join(self.value(each, f"{path}.anyOf") for each in several))
        types = _types(schema, path)
        allowed = frozenset({"type"}).union(*(_OF_TYPE[name] for name in types or _OF_TYPE))
        _refuse(keys - allowed, path, "")
        if not types:
            return f"any{DEPTH}"
        return self._rule(" | ".join(self._typed(name, schema, path) for name in types))

    def _rule(self, body: str) -> str:
        name = f"r{len(self.lines)}"
        self.lines.append(f"{name}: {body}")
        return name

    def _referred(self, address: Any, where: str, path: str) -> str:
        local = _REFERENCE.fullmatch(address) if isinstance(address, str) else None
        if local is None or not isinstance(self._definitions[local[1]], Mapping):
            message = "only `#/$defs/NAME` and `#/definitions/NAME` are supported"
            raise SchemaError(where, "$ref", message)
        if local[2] not in self._definitions[local[1]]:
            raise SchemaError(where, "$ref", f"there is no `{address}`")
        if address not in self._known:
            self._known[address] = None
            found = self.value(self._definitions[local[1]][local[2]], path)
            self._known[address] = self._rule(found)
        known = self._known[address]
        if known is None:
            raise SchemaError(where, "$ref", f"`{address}` refers to itself")
        return known

    def _typed(self, kind: str, schema: Mapping[str, Any], path: str) -> str:
        if kind == "object":
            return self._object(schema, path)
        if kind == "array":
            items = self.value(schema.get("items", True), f"{path}.items")
            return _array(items, *_bounds(schema, "minItems", "maxItems", path))
        if kind == "string":
            return self._string(*_bounds(schema, "minLength", "maxLength", path))
        return _SCALARS[kind]

    def _string(self, least: int, most: int | None) -> str:
        if (least, most) == (0, None):
            return "STRING"
        if most == 0:
            return _quoted('""')
        name = f"S{len(self.lines)}"
        upper = "" if most is None else most
        self.lines.append(rf'{name}: "\"" CHAR{{{least},{upper}}} "\""')
        return name

    def _object(self, schema: Mapping[str, Any], path: str) -> str:
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping) or len(properties) > MOST_KEYS:
            message = f"must be an object of at most {MOST_KEYS} keys"
            raise SchemaError(f"{path}.properties", "properties", message)
        values = {key: self.value(s, f"{path}.properties.{key}") for key, s in properties.items()}
        listed = _list(schema, "required", path) if "required" in schema else []
        if not all(isinstance(key, str) for key in listed):
            raise SchemaError(f"{path}.required", "required", "must be a list of names")
        required = frozenset[str](listed)
        if missing := sorted(required - set(values)):
            message = f"`{missing[0]}` is required and has no schema in `properties`"
            raise SchemaError(f"{path}.required", "required", message)
        if values:
            return self._keyed(values, required)
        more = schema.get("additionalProperties", True)
        if more is False:
            return '"{" "}"'
        return _map(self.value(more, f"{path}.additionalProperties"))

    def _keyed(self, values: Mapping[str, str], required: frozenset[str]) -> str:
        """Declared keys in any order: bit k of a rule's parameter says that key k was written, and
        the required keys have the lowest bits."""
        name = f"r{len(self.lines)}"
        end = f"%if is_ones([0:{len(required)}])" if required else ""
        members = [
            f"{_quoted(_spelled(key))} COLON {values[key]} {name}m::set_bit({bit})"
            for bit, key in enumerate(sorted(values, key=lambda key: key not in required))
        ]
        further = [f"COMMA {each} %if bit_clear({bit})" for bit, each in enumerate(members)]
        self.lines += [
            f'{name}: "{{" {name}f::0x0 "}}"',
            " | ".join([f'{name}f::_: "" {end}', *members]),
            " | ".join([f'{name}m::_: "" {end}', *further]),
        ]
        return name


def _array(item: str, least: int = 0, most: int | None = None) -> str:
    if most == 0:
        return '"[" "]"'
    upper = "" if most is None else most - 1
    some = f"{item} (COMMA {item}){{{max(least - 1, 0)},{upper}}}"
    return f'"[" {some} "]"' if least else f'"[" ({some})? "]"'


def _map(value: str) -> str:
    return f'"{{" (STRING COLON {value} (COMMA STRING COLON {value})*)? "}}"'


def _any_values() -> str:
    scalar = 'STRING | NUMBER | "true" | "false" | "null"'
    nested = [
        f"any{depth}: {scalar} | {_array(f'any{depth - 1}')} | {_map(f'any{depth - 1}')}"
        for depth in range(1, DEPTH + 1)
    ]
    return "\n".join([f"any0: {scalar}", *nested])


def _one_of(texts: Iterable[str]) -> str:
    return f"({' | '.join(map(_quoted, texts))})"


def _quoted(text: str) -> str:
    """A text as a literal of the grammar."""
    return json.dumps(text, ensure_ascii=False)


def _spelled(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def _refuse(keys: set[str], path: str, where: str) -> None:
    if keys:
        keyword = min(keys)
        message = f"`{keyword}` is not supported {where}".strip()
        raise SchemaError(f"{path}.{keyword}", keyword, message)


def _types(schema: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """The types that a schema names, or the one that its keywords imply; none for any value."""
    if "type" not in schema:
        implied = (name for name in ("object", "array", "string") if _OF_TYPE[name] & set(schema))
        return tuple(implied)[:1]
    named = schema["type"]
    types = (named,) if isinstance(named, str) else tuple(named) if isinstance(named, list) else ()
    if not types or any(not isinstance(name, str) or name not in _OF_TYPE for name in types):
        raise SchemaError(f"{path}.type", "type", f"{named!r} is not a type")
    return types


def _listed(schema: Mapping[str, Any], path: str) -> list[str]:
    """The JSON of `enum` and `const`, without the values that `type` excludes."""
    values = _list(schema, "enum", path) if "enum" in schema else [schema["const"]]
    if "const" in schema:
        values = [value for value in values if _spelled(value) == _spelled(schema["const"])]
    types = _types(schema, path)
    fitting = [value for value in values if not types or any(_is(value, name) for name in types)]
    if not fitting:
        raise SchemaError(f"{path}.enum", "enum", "no value fits")
    return list(dict.fromkeys(map(_spelled, fitting)))


def _is(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        fits = whole if kind == "integer" else isinstance(value, int | float)
        return fits and not isinstance(value, bool)
    return isinstance(value, _PYTHON[kind])


def _bounds(schema: Mapping[str, Any], low: str, high: str, path: str) -> tuple[int, int | None]:
    least, most = schema.get(low, 0), schema.get(high)
    for keyword, value in ((low, least), (high, most)):
        if value is not None and (type(value) is not int or not 0 <= value < 2**31):
            raise SchemaError(f"{path}.{keyword}", keyword, "must be a whole number, 0 to 2^31 - 1")
    if most is not None and most < least:
        raise SchemaError(f"{path}.{high}", high, f"is less than `{low}`")
    return least, most


def _list(schema: Mapping[str, Any], keyword: str, path: str) -> list[Any]:
    found = schema[keyword]
    if not isinstance(found, list) or (not found and keyword != "required"):
        raise SchemaError(f"{path}.{keyword}", keyword, "must be a list that is not empty")
    return found
