"""Whatever is drawn under a schema, it parses and validates; what is not supported is named."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
import pytest

from reference.inference.json_grammar import SchemaError, schema_grammar
from reference.inference.request import AnswerConstraint, AnswerRules, Sampling, TokenMasks, begin
from reference.text.template import END, parse_answer
from reference.text.tokenizer import ByteTokenizer, Vocabulary
from tests.reference.inference.small import VOCABULARY, asked, engine, ids, run

WORDS = [bytes([value]) for value in range(256)] + [
    b'"', b'{"', b'": ', b', "', b'"}', b"true", b"12", b"e-", b"\xc3\xa9", b'x", "', b"\\u00",
]  # fmt: skip


class Wordy(ByteTokenizer):
    """Bytes, and some tokens of several."""

    pieces = tuple(WORDS)


MASKS = TokenMasks(Vocabulary(Wordy(), len(WORDS) + 1))
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        "näme": {"enum": ["é", 'q"', 1, 12, None, {"a": [1]}]},
        "age": {"type": ["integer", "null"], "description": "years"},
        "where": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": "boolean"}},
            "required": ["y"],
            "additionalProperties": False,
        },
        "more": {"anyOf": [{"const": "no"}, {"type": "object"}]},
    },
    "required": ["name", "where"],
    "additionalProperties": False,
}
SCHEMAS = {
    "person": PERSON,
    "anything": {},
    "keys": {"type": "object", "additionalProperties": {"type": "integer"}},
    "lists": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    "nothing": {"type": "object", "properties": {}, "additionalProperties": False},
}


def written(schema, seed: int) -> str:
    """A value of random words, all that may be followed by ones that end it after 60."""
    matcher = MASKS.matcher(schema_grammar(schema))
    random, made = Random(seed), b""
    while True:
        allowed = MASKS.allowed(matcher).nonzero().flatten().tolist()
        if matcher.is_accepting() and (not allowed or random.random() < 0.3):
            return made.decode()
        closing = [word for word in allowed if WORDS[word][-1:] in b'"}]']
        word = random.choice(closing if closing and len(made) > 60 else allowed)
        made += WORDS[word]
        assert matcher.consume_token(word)


def accepts(schema, text: bytes, *, whole: bool = True) -> bool:
    """Whether the grammar takes these bytes, as a whole value or as the beginning of one."""
    matcher = MASKS.matcher(schema_grammar(schema))
    taken = matcher.try_consume_tokens(list(text)) == len(text)
    return taken and (matcher.is_accepting() or not whole)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_value_that_ends_parses_and_validates(name: str) -> None:
    found = {written(SCHEMAS[name], seed) for seed in range(5)}
    for text in found:
        jsonschema.validate(json.loads(text), SCHEMAS[name])
    assert len(found) > 2 or name == "nothing"


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Zoë", "where": {"y": True}},
        {"where": {"x": -1.5e-07, "y": False}, "name": "\u00e9\n\\", "age": None},
        {"name": "a", "names": ["", "b c"], "näme": {"a": [1]}, "where": {"y": True, "x": 0}},
        {"more": {"any": [1, {"thing": None}]}, "name": "a", "where": {"y": True}},
    ],
)
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_what_json_writes_of_a_valid_value_is_allowed(value, separators) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    # A constant is written as `json.dumps` does by default.
    assert accepts(PERSON, text.replace('{"a":[1]}', '{"a": [1]}').encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"a"}',
        '{"name":"a","where":{"y":true},"name":"b"}',
        '{"name":"","where":{"y":true}}',
        '{"name":"abcdef","where":{"y":true}}',
        '{"name":"a","where":{"y":true},"other":1}',
        '{"name":"a","where":{"y":true},"age":1.5}',
        '{"name":"a","where":{"y":true},"age":01}',
        '{"name":"\\ud800","where":{"y":true}}',
        '{"name":"a","where":{"y":true},}',
        '{"name":"a","names":[],"where":{"y":true}}',
    ],
)
def test_what_does_not_validate_has_no_way(text: str) -> None:
    assert not accepts(PERSON, text.encode())


def test_half_characters_and_bytes_that_are_no_utf_8_are_not_allowed() -> None:
    assert accepts({"type": "string"}, '"é'.encode(), whole=False)
    for wrong in (b'"\xc3"', b'"\xff', b'"\xed\xa0\x80', b'"\xc0\x80', b'"\xf5'):
        assert not accepts({"type": "string"}, wrong, whole=False)


HELD = {"$ref": "#/$defs/a"}


def test_definitions_stand_where_they_are_referred_to() -> None:
    """As pydantic writes the schema of a model within a model; `$ref` may be a property's name."""
    day = {"type": "object", "properties": {"$ref": {"enum": [1, 2]}}, "required": ["$ref"]}
    referring = {
        "type": "object",
        "properties": {
            "from": {"$ref": "#/$defs/Day", "title": "a day"},
            "to": {"$ref": "#/$defs/Day"},
        },
        "required": ["from", "to"],
        "$defs": {"Day": day},
    }
    assert accepts(referring, b'{"from":{"$ref":1},"to":{"$ref":2}}')
    assert not accepts(referring, b'{"from":{"$ref":3},"to":{"$ref":2}}')


def doubling(levels: int) -> dict[str, Any]:
    """A schema whose definitions each refer to the next one twice."""
    names = [f"#/$defs/d{level}" for level in range(levels + 1)]
    both = [{"properties": {key: {"$ref": name} for key in "xy"}} for name in names[1:]]
    defined = {f"d{level}": each for level, each in enumerate([*both, {"type": "string"}])}
    return {"$defs": defined, "$ref": names[0]}


def test_a_definition_is_one_rule_however_often_it_is_referred_to() -> None:
    sizes = [len(schema_grammar(doubling(levels))) for levels in (9, 18)]
    assert sizes[1] < 3 * sizes[0]
    MASKS.matcher(schema_grammar(doubling(18)))


def nested(levels: int) -> Any:
    """An array of arrays."""
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


BOMBS: dict[str, Any] = {
    "levels": nested(70),
    "more levels than Python's stack": nested(5000),
    "levels of definitions": doubling(40),
    "options": {"enum": [str(number) for number in range(1001)]},
    "values": {"anyOf": [{"type": "null"}] * 1001},
    "text": {"description": "x" * 120_001},
    "text of a key": {"properties": {"x" * 120_001: {}}},
    "depth of an option": {"enum": [nested(5000)]},
    "a key that is a number": {1: 2},
    "required keys that are no names": {"properties": {"a": {}}, "required": [["a"]]},
    "a type that is an object": {"type": [{}]},
    "a type that is a list": {"type": [["string"]]},
    "half of a surrogate pair": {"enum": ["\ud800"]},
    "half of a surrogate pair as a key": {"properties": {"\ud800": {}}},
    "a number beyond JSON": {"const": float("nan")},
    "a bound beyond the parser's": {"type": "string", "maxLength": 10**30},
    "a definition of itself": {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "definitions that are no object": {"$defs": 3, "$ref": "#/$defs/a"},
    "a reference that is no text": {"$ref": []},
    "properties that are no object": {"properties": None},
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_compiled(name: str) -> None:
    with pytest.raises(SchemaError):
        schema_grammar(BOMBS[name])


def test_a_grammar_that_its_parser_cannot_follow_ends_its_own_choice_only(monkeypatch) -> None:
    monkeypatch.setattr("reference.inference.json_grammar.MOST_VALUES", 5000)
    wide = schema_grammar({"enum": [f"{number:04}" for number in range(2500)]})
    rules = AnswerRules(TokenMasks(VOCABULARY), {}, "none", json=wide)
    served = engine()
    served.add(asked("a", 40, constraint=begin(rules)))
    served.add(asked("b", 40))
    ends = {update.request: update for update in run(served) if update.finish}
    assert ends[0].finish == "error"
    assert "too large" in ends[0].text
    assert ends[1].finish == "length"


def test_a_number_is_a_finite_double_and_a_lone_value_nests_six_deep() -> None:
    for text, fits in ((b"1e99", True), (b"1e999", False), (b"9" * 15, True), (b"9" * 16, False)):
        assert accepts({"type": "number"}, text) is fits
    for depth in (6, 7):
        assert accepts({}, b"[" * depth + b"]" * depth) is (depth == 6)


@pytest.mark.parametrize(
    ("schema", "path", "keyword"),
    [
        ({"type": "string", "pattern": "a+"}, "pattern", "pattern"),
        (
            {"properties": {"a": {"type": "integer", "minimum": 1}}},
            "properties.a.minimum",
            "minimum",
        ),
        ({"oneOf": [{}]}, "oneOf", "oneOf"),
        ({"items": HELD}, "items.$ref", "$ref"),
        ({"items": {"$ref": "other.json"}}, "items.$ref", "$ref"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
            "items.$ref",
            "$ref",
        ),
        ({**HELD, "minimum": 1, "$defs": {"a": {}}}, "minimum", "minimum"),
        ({"type": "object", "required": ["a"]}, "required", "required"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "maxItems", "maxItems"),
        ({"type": "integer", "enum": ["a"]}, "enum", "enum"),
        ({"type": "text"}, "type", "type"),
        ({"type": "array", "minLength": 3}, "minLength", "minLength"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_path_and_keyword(schema, path, keyword) -> None:
    with pytest.raises(SchemaError) as refused:
        schema_grammar(schema)
    assert (refused.value.path.strip("."), refused.value.keyword) == (path, keyword)


SPEECH = TokenMasks(VOCABULARY)
SMALL = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "s": {"enum": ["a", "b"]}, "b": {"type": "boolean"}},
    "required": ["n"],
}
TOOLS = {"add": SMALL, "addition": {"type": "object", "additionalProperties": False}}


def answer(**fields) -> AnswerConstraint:
    tools = {name: schema_grammar(schema) for name, schema in TOOLS.items()}
    return begin(AnswerRules(**{"masks": SPEECH, "tools": tools, "calls": "must", **fields}))


def said(constraint: AnswerConstraint, seed: int, tokens: int = 250, **fields):
    """What a model of random weights says under a constraint, and why it ended."""
    served = engine()
    end = frozenset({VOCABULARY.markers[END]})
    drawn = Sampling(temperature=2.0, seed=seed, **fields)
    served.add(asked("go", tokens, constraint=constraint, stop_tokens=end, sampling=drawn))
    updates = run(served)
    return parse_answer(VOCABULARY.segments(ids(updates, 0)), 3), updates[-1].finish


@pytest.mark.parametrize("seed", range(3))
def test_every_call_of_random_weights_parses_and_validates(seed: int) -> None:
    message, finish = said(answer(first_call=3, most_calls=2), seed)
    assert finish == "stop"
    assert 1 <= len(message.calls) <= 2
    assert message.content == ""
    for index, call in enumerate(message.calls, 3):
        assert call.id == f"functions.{call.name}:{index}"
        jsonschema.validate(json.loads(call.arguments), TOOLS[call.name])


def test_under_auto_a_call_that_begins_is_constrained_and_one_that_need_not_does_not() -> None:
    free = answer(calls="may")
    allowed_W = free.allowed()
    assert allowed_W[VOCABULARY.markers["<|tool_calls_section_begin|>"]]
    assert allowed_W[ord("a")]
    assert not allowed_W[VOCABULARY.markers["<|tool_call_begin|>"]]
    opened = free.after(VOCABULARY.markers["<|tool_calls_section_begin|>"])
    assert opened.allowed().nonzero().flatten().tolist() == [
        VOCABULARY.markers["<|tool_call_begin|>"]
    ]
    never = answer(calls="none").allowed()
    assert not never[VOCABULARY.markers["<|tool_calls_section_begin|>"]]


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_in_json_validates(seed: int) -> None:
    schema = {**SMALL, "required": ["n", "b"], "additionalProperties": False}
    message, finish = said(answer(calls="none", json=schema_grammar(schema)), seed)
    assert finish == "stop"
    jsonschema.validate(json.loads(message.content), schema)
