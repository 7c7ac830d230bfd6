"""`twin resolve`: the whole scenario, and where every value came from."""

from __future__ import annotations

import sys

from twin.cli.options import JsonOption, QuietOption, ScenarioArgument, SetOption
from twin.cli.output import Output

VERSION = 1
"""Version of the JSON document."""


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
