"""`twin schema`: the fields of a scenario file. `twin resolve`: the whole scenario, and where every
value came from."""

from __future__ import annotations

import sys
from typing import Literal

from twin.cli.output import Output, dumps
from twin.loading import load_any, rows, scenario_hash
from twin.loading import resolve as written_out
from twin.loading.files import find_scenario, read_family
from twin.loading.schema import reference_page, scenario_schema

VERSION = 1
"""Version of the JSON documents."""


def schema(
    *, scenario: str | None, form: Literal["json-schema", "markdown"], output: Output
) -> int | None:
    """What a scenario file may hold."""

    # Where the catalogs of a scenario are: beside it, and beside what it extends.
    document = scenario_schema(read_family(find_scenario(scenario)).folders if scenario else ())
    is_page = form == "markdown"
    if output.json and is_page:
        output.document({"version": VERSION, "markdown": reference_page(document)})
    elif output.json:
        output.document({"version": VERSION, "schema": document})
    else:
        sys.stdout.write(reference_page(document) if is_page else dumps(document))


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
