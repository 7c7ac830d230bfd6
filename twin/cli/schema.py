"""`twin schema`: the fields of a scenario file. `twin resolve`: the whole scenario, and where every
value came from."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from twin.cli.options import JsonOption, QuietOption, ScenarioArgument, SetOption
from twin.cli.output import Output, dumps

VERSION = 1
"""Version of the JSON documents."""


class Format(StrEnum):
    """How the fields are described."""

    JSON_SCHEMA = "json-schema"
    MARKDOWN = "markdown"


_ScenarioArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SCENARIO", help="Also know the parts in the catalogs beside this scenario."
    ),
]
_FormatOption = Annotated[
    Format, typer.Option("--format", help="For editors and programs, or for people.")
]


def schema(
    scenario: _ScenarioArgument = None,
    form: _FormatOption = Format.JSON_SCHEMA,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What a scenario file may hold.

    Prints the JSON Schema (2020-12) of a scenario file, from which editors complete and explain
    fields, or the field reference as Markdown.
    """
    from twin.loading.schema import reference_page, scenario_schema

    document = scenario_schema(_folders(scenario) if scenario else ())
    output, is_page = Output(as_json, quiet), form is Format.MARKDOWN
    if as_json and is_page:
        output.document({"version": VERSION, "markdown": reference_page(document)})
    elif as_json:
        output.document({"version": VERSION, "schema": document})
    else:
        sys.stdout.write(reference_page(document) if is_page else dumps(document))


def _folders(scenario: str) -> list[Path]:
    """Where the catalogs of a scenario are: beside it, and beside what it extends."""
    from twin.loading.files import find_scenario, read_family

    return read_family(find_scenario(scenario)).folders


def resolve(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The whole scenario, and where values come from.

    Prints YAML that loads to the same scenario; a comment beside each value says where it was
    written, and how a catalog number is known.
    """
    from twin.loading import load_any, rows, scenario_hash
    from twin.loading import resolve as written_out

    loaded = load_any(scenario, sets or [])
    if not as_json:
        sys.stdout.write(written_out(loaded))
        return
    Output(as_json, quiet).document(
        {
            "version": VERSION,
            "name": loaded.name,
            "hash": scenario_hash(loaded),
            "scenario": loaded.model_dump(mode="json", by_alias=True),
            "origins": {row.path: str(row.origin) for row in rows(loaded)},
        }
    )
