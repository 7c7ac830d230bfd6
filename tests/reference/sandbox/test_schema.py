"""Arguments that models write: what is wrong is told with its place, and nothing raises."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.sandbox.schema import check_schema, errors_of, read_arguments
from twin.errors import ScenarioError

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def test_right_arguments_are_read() -> None:
    assert read_arguments('{"a": 1, "b": 2}', ADD) == ({"a": 1, "b": 2}, [])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{", "no JSON"),
        ("[1]", "must be a JSON object"),
        ('{"a": NaN, "b": 1}', "NaN is no number"),
        ('{"a": 1}', "arguments.b: is missing"),
        ('{"a": "1", "b": 2}', "arguments.a: must be integer, not string"),
        ('{"a": true, "b": 2}', "arguments.a: must be integer, not boolean"),
        ('{"a": -1, "b": 2}', "arguments.a: must be at least 0"),
        ('{"a": 1, "b": 2, "c": 3}', "arguments.c: is not known; known: a, b"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_wrong_arguments_are_told_with_their_place(arguments: str, told: str) -> None:
    assert told in "; ".join(read_arguments(arguments, ADD)[1])


_LEAF = st.sampled_from([0, 1, 1.0, -2, 2.5, True, False, None, "", "ab", "abcd"])
_VALUE = st.recursive(
    _LEAF, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from("ab"), one)
)
_SCHEMAS = (
    ADD,
    {"type": ["integer", "null"]},
    {"enum": [1, "ab", None]},
    {"enum": [[True], {"a": 0}]},
    {"const": False},
    {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "b$"},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
    {"minimum": 1, "exclusiveMaximum": 2.5},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
    {"anyOf": [{"type": "string"}, {"type": "array", "items": False}]},
    {
        "type": "object",
        "properties": {"a": {"enum": [1]}},
        "additionalProperties": {"type": "null"},
    },
    {"items": {"properties": {"a": {"type": "boolean"}}, "required": ["b"]}},
)


@given(_VALUE, st.sampled_from(_SCHEMAS))
@settings(max_examples=150, deadline=None)
def test_values_fit_where_the_package_jsonschema_says_so(value: Any, schema: Any) -> None:
    check_schema(schema, "schema")
    theirs = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (not list(errors_of(value, schema))) == theirs


_DEEP: Any = {"type": "array"}
for _ in range(3000):
    _DEEP = {"items": _DEEP}


@pytest.mark.parametrize(
    "schema",
    [
        *({"oneOf": []}, {"type": "text"}, 3, {"items": {"$ref": "#"}}, _DEEP),
        *({"type": 3}, {"type": [{}]}, {"properties": []}, {"required": "a"}, {"anyOf": {}}),
        *({"enum": "x"}, {"minimum": "1"}, {"maxLength": 1.5}, {"pattern": "("}, {"pattern": 3}),
    ],
)
def test_a_schema_that_is_not_understood_is_refused(schema: Any) -> None:
    with pytest.raises(ScenarioError, match="TW545"):
        check_schema(schema, "tools.x.parameters")


def test_a_pattern_that_goes_back_and_forth_is_given_up() -> None:
    """Each further letter would take longer by half."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a|aa)+$"}}}
    check_schema(schema, "schema")
    begin = time.process_time()
    _, errors = read_arguments(json.dumps({"a": 60 * "a" + "b"}), schema)
    assert errors == ["a pattern of the schema takes longer than 1 s on this text"]
    assert time.process_time() - begin < 5
