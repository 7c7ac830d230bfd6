"""Text to `Scenario`: files, what they extend, catalog names and overrides, with the origin of
every value; and a resolved scenario back to text."""

from twin.loading.catalog import Part, catalog_parts, load_part, stacks_of, unavailable
from twin.loading.load import load, load_any
from twin.loading.yaml_text import Row, resolve, rows, scenario_hash

__all__ = [
    "Part",
    "Row",
    "catalog_parts",
    "load",
    "load_any",
    "load_part",
    "resolve",
    "rows",
    "scenario_hash",
    "stacks_of",
    "unavailable",
]
