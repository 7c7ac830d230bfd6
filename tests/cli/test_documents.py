"""The schemas of answers: whole, valid, and printed by the verb. That answers obey them is checked
where any test has a verb print one (tests/conftest.py)."""

import json

import pytest
from jsonschema import Draft202012Validator, ValidationError

from tests.command import Command
from tests.documents import expanded, schema, shared, validator
from twin.cli.schema import answering
from twin.cli.verbs import verbs

WITHOUT = {"new"}
"""Verbs that no fast test has answer in JSON."""


def test_every_verb_that_answers_in_json_has_a_schema() -> None:
    said = {name for name, verb in verbs().items() if "as_json" in verb["parameters"]}
    assert {*answering()} >= said - WITHOUT


@pytest.mark.parametrize("verb", answering())
def test_a_schema_is_valid_and_knows_its_version(verb: str) -> None:
    whole = validator(verb).schema
    assert isinstance(whole, dict)
    Draft202012Validator.check_schema(whole)
    assert whole["properties"]["version"]["enum"]
    with pytest.raises(ValidationError):
        validator(verb).validate({"version": "another"})


def test_the_verb_prints_the_schema_and_names_the_nearest(twin_command: Command) -> None:
    done = twin_command("schema", "--answer", "compare")
    assert json.loads(done.out) == validator("compare").schema
    wrong = twin_command("schema", "--answer", "compar")
    assert wrong.code == 2
    assert "did you mean `compare`?" in wrong.err


def test_a_schema_keeps_what_all_have_and_makes_a_map_of_names_that_are_data() -> None:
    made = schema(
        "run",
        [
            {"version": 1, "kind": "a", "n": 1, "by": {"x y": 1.5}, "of": {"p": 1, "q": ""}},
            {"version": 1, "kind": "a", "n": None, "by": {"z": 2}, "of": {"p": 2, "q": ""}},
        ],
    )
    assert made["required"] == ["by", "kind", "n", "of", "version"]
    assert made["properties"]["n"]["type"] == ["null", "number"]
    assert made["properties"]["by"]["additionalProperties"] == {"type": "number"}
    assert made["properties"]["of"]["required"] == ["p", "q"]
    assert made["properties"]["kind"] == {"const": "a"}


def test_parts_that_stand_in_several_places_are_written_once_and_mean_the_same() -> None:
    span = {"from_seconds": 1.5, "to_seconds": 2.5, "why": "it waits for weights"}
    documents = {
        "run": {"version": 1, "kind": "a", "first": [span], "again": [span], "within": span},
        "track": {"version": 1, "spans": [span]},
    }
    wholes = {verb: schema(verb, [document]) for verb, document in documents.items()}
    short = shared(wholes)
    parts = short.pop("parts")
    assert list(parts) == ["again", "within"]
    assert short["run"]["properties"]["first"] == short["track"]["properties"]["spans"]
    assert {verb: expanded(one, parts) for verb, one in short.items()} == wholes
    for verb, document in documents.items():
        made = Draft202012Validator({**short[verb], "$defs": parts})
        made.validate(document)
        with pytest.raises(ValidationError):
            made.validate(document | {key: [{**span, "why": 1}] for key in ("first", "spans")})


def test_printed_schemas_have_the_parts_that_they_refer_to() -> None:
    whole = validator("compare").schema
    assert isinstance(whole, dict)
    text = json.dumps(whole)
    assert all(f'#/$defs/{name}"' in text for name in whole["$defs"])


def test_a_node_whose_children_are_nodes_is_written_once_for_every_depth() -> None:
    def node(*children: object) -> dict[str, object]:
        return {"name": "a", "children": list(children)}

    short = shared({"run": schema("run", [{"version": 1, "of": node(node(node()))}])})
    parts = short["parts"]
    assert list(parts) == ["of"]
    assert shared({"run": expanded(short["run"], parts)}) == short
    made = Draft202012Validator({**short["run"], "$defs": parts})
    made.validate({"version": 1, "of": node(node(node(node(node()))))})
    with pytest.raises(ValidationError):
        made.validate({"version": 1, "of": node(node(node(node({"name": 1, "children": []}))))})
