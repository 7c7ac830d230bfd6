"""`twin schema`: the fields of a scenario file. `twin resolve`: the whole scenario, and where every
value came from."""

from __future__ import annotations

import json
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

import typer

from twin.cli.output import Output, dumps
from twin.loading import load_any, rows, scenario_hash
from twin.loading import resolve as written_out
from twin.loading.files import find_scenario, read_family
from twin.loading.schema import reference_page, scenario_schema

VERSION = 1
"""Version of the JSON documents."""
ANSWERS: Final = Path(__file__).with_name("documents")
"""The folder of schemas of answers, a file per verb; `parts.json` has what stands in several
places, by name."""
PARTS: Final = ANSWERS / "parts.json"
_REFERENCE: Final = re.compile(r'"#/\$defs/(\w+)"')


def schema(
    *,
    scenario: str | None,
    form: Literal["json-schema", "markdown"],
    answer: str | None,
    output: Output,
) -> int | None:
    """What a scenario file may hold, or an answer holds."""

    if answer is not None:
        found = _of_answer(answer)
        output.document({"version": VERSION, "schema": found})
        output.sentence(dumps(found).rstrip())
        return
    # Where the catalogs of a scenario are: beside it, and beside what it extends.
    document = scenario_schema(read_family(find_scenario(scenario)).folders if scenario else ())
    is_page = form == "markdown"
    if output.json and is_page:
        output.document({"version": VERSION, "markdown": reference_page(document)})
    elif output.json:
        output.document({"version": VERSION, "schema": document})
    else:
        sys.stdout.write(reference_page(document) if is_page else dumps(document))


def _of_answer(verb: str) -> dict[str, Any]:
    """The schema of a verb's JSON answers, with its version."""
    known = answering()
    if verb not in known:
        near = get_close_matches(verb, known, 1)
        fix = f"did you mean `{near[0]}`?" if near else f"verbs with answers: {', '.join(known)}"
        raise typer.BadParameter(f"`{verb}` has no JSON answer; {fix}", param_hint="--answer")
    return answer_schema(verb)


def answering() -> list[str]:
    """The verbs with JSON answers."""
    return sorted(file.stem for file in ANSWERS.glob("*.json") if file != PARTS)


def answer_schema(verb: str) -> dict[str, Any]:
    """The schema of a verb's JSON answers, with the parts that it refers to."""
    whole = json.loads((ANSWERS / f"{verb}.json").read_text(encoding="utf-8"))
    parts = json.loads(PARTS.read_text(encoding="utf-8"))
    own: dict[str, Any] = {}
    while names := {*_REFERENCE.findall(json.dumps([whole, own]))} - own.keys():
        own |= {name: parts[name] for name in names}
    return {**whole, **({"$defs": dict(sorted(own.items()))} if own else {})}


def resolve(*, scenario: str, sets: list[str], output: Output) -> int | None:
    """The whole scenario, and where values come from."""

    loaded = load_any(scenario, sets)
    if not output.json:
        sys.stdout.write(written_out(loaded))
        return
    output.document(
        {
            "version": VERSION,
            "name": loaded.name,
            "hash": scenario_hash(loaded),
            "scenario": loaded.model_dump(mode="json", by_alias=True),
            "origins": {row.path: str(row.origin) for row in rows(loaded)},
        }
    )
