"""The schemas of answers: whole, valid, and printed by the verb. That answers obey them is checked
where any test has a verb print one (tests/conftest.py)."""

import json

import pytest
from jsonschema import Draft202012Validator, ValidationError

from tests.cli.conftest import Command
from tests.documents import FOLDER, schema, shared, validator
from twin.cli.verbs import verbs

WITHOUT = {"new"}
"""Verbs that no fast test has answer in JSON."""


def test_every_verb_that_answers_in_json_has_a_schema() -> None:
    said = {name for name, verb in verbs().items() if "as_json" in verb["parameters"]}
    assert {file.stem for file in FOLDER.glob("*.json")} >= said - WITHOUT


@pytest.mark.parametrize("verb", [file.stem for file in sorted(FOLDER.glob("*.json"))])
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
    document = {"version": 1, "kind": "a", "first": [span], "again": [span], "within": span}
    whole = schema("run", [document])
    short = shared(whole)
    assert list(short["$defs"]) == ["again", "within"]
    assert short["properties"]["first"] == short["properties"]["again"]
    for made in (whole, short):
        Draft202012Validator(made).validate(document)
        with pytest.raises(ValidationError):
            Draft202012Validator(made).validate(document | {"first": [{**span, "why": 1}]})
