"""Tools: what is refused is told, what is done is done once, and nothing raises."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.dialog import Call, numbered
from reference.sandbox.job import RunLimits
from reference.sandbox.schema import check_schema, errors_of, read_arguments
from reference.sandbox.tools import CallRate, TokenBucket, Tool, Tools, python_tool
from twin.errors import ScenarioError

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def _add(arguments: Any) -> Any:
    return arguments["a"] + arguments["b"]


def _tools(**words: Any) -> Tools:
    clock = words.pop("clock", lambda: 0.0)
    allowed = words.pop("allowed", None)
    return Tools([Tool("add", "Adds.", ADD, **{"run": _add, **words})], allowed, clock)


def _call(tools: Tools, arguments: str = '{"a": 1, "b": 2}', name: str = "add") -> tuple[str, str]:
    result = tools.call(numbered(name, 0, arguments))
    assert result.id == f"functions.{name}:0"
    return result.ended, result.content


def test_a_call_is_done_and_its_value_written_as_json() -> None:
    assert _call(_tools()) == ("done", "3")


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
    ended, content = _call(_tools(), arguments)
    assert ended == "invalid"
    assert told in content


def test_unknown_and_forbidden_tools_are_told_and_not_run() -> None:
    assert _call(_tools(), name="no")[0] == "unknown"
    assert _call(_tools(allowed=[]))[0] == "forbidden"
    assert _tools(allowed=[]).declarations() == []
    assert _tools().call(Call("functions.minus:0", "minus", "{}")).ended == "unknown"


def test_a_failing_tool_is_a_result() -> None:
    def fail(arguments: Any) -> Any:
        raise RuntimeError(f"no {arguments['a']}")

    assert _call(_tools(run=fail)) == ("failed", "Error: RuntimeError: no 1")
    assert _call(_tools(run=lambda _: object()))[0] == "failed"


def test_a_slow_tool_is_given_up() -> None:
    release = threading.Event()
    try:
        ended, told = _call(_tools(run=lambda _: release.wait(5), timeout_s=0.05))
        assert (ended, told) == ("timeout", "Error: add took longer than 0.05 s.")
    finally:
        release.set()


def test_a_long_result_keeps_its_ends() -> None:
    ended, told = _call(_tools(run=lambda _: "a" * 50 + "b" * 50, output=20))
    assert ended == "done"
    assert told == f"{'a' * 10}\n[... 80 characters left out ...]\n{'b' * 10}"


def test_a_rate_allows_its_burst_then_one_call_each_period() -> None:
    now = [0.0]
    tools = _tools(rate=CallRate(burst=2, per_second=0.5), clock=lambda: now[0])
    assert [_call(tools)[0] for _ in range(3)] == ["done", "done", "limited"]
    assert "in 2.0 s" in _call(tools)[1]
    assert _call(tools, "{}")[0] == "invalid"  # it takes nothing
    now[0] = 2.0
    assert [_call(tools)[0] for _ in range(2)] == ["done", "limited"]
    now[0] = 1000.0
    assert [_call(tools)[0] for _ in range(3)] == ["done", "done", "limited"]


@given(st.lists(st.floats(0, 3), max_size=30), st.integers(1, 5), st.floats(0.1, 3))
@settings(max_examples=30, deadline=None)
def test_a_bucket_gives_no_more_than_its_burst_and_rate(
    waits: list[float], burst: int, per_second: float
) -> None:
    now = [0.0]
    bucket = TokenBucket(CallRate(burst=burst, per_second=per_second), lambda: now[0])
    given_out = 0
    for wait in waits:
        now[0] += wait
        given_out += bucket.take() == 0.0
        assert given_out <= burst + now[0] * per_second + 1e-6


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


def test_python_runs_in_the_sandbox() -> None:
    tools = Tools([python_tool(RunLimits.model_validate({"wall": "5s"}))])
    assert _call(tools, '{"code": "print(6 * 7)"}', "python") == ("done", "42\n")
    ended, told = _call(tools, '{"code": "open(\'/etc/shadow\')"}', "python")
    assert ended == "done"
    assert "Error" in told
    assert "ended by exit code 1" in told
