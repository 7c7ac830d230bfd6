"""The catalog and the published rows, read for these tests without the product's loader."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from twin.sources import KINDS

SCENARIOS = Path(__file__).parents[2] / "scenarios"
CATALOG = SCENARIOS / "catalog"


@cache
def read(path: Path) -> Any:
    """A YAML file as plain data."""
    return YAML(typ="safe").load(path)


def published(name: str) -> dict[str, Any]:
    """The rows of a file of published measurements, by id."""
    return {row["id"]: row for row in read(SCENARIOS / "published" / name)["measurements"]}


def leaf(part: str, path: str) -> dict[str, Any]:
    """One annotated leaf of a part, such as `nodes/h800-8gpu`, `nvlink.efficiency`."""
    found = read(CATALOG / f"{part}.yaml")
    for key in path.split("."):
        found = found[key]
    return found


def plain(part: str) -> dict[str, Any]:
    """A part with every leaf reduced to its value and provenance left out; a node with its GPU."""
    data: dict[str, Any] = _values(read(CATALOG / f"{part}.yaml"))
    data.pop("source", None)
    if data.get("kind") in KINDS:
        del data["kind"]
    if part.startswith("nodes/"):
        data["gpu"] = plain(f"gpus/{data['gpu']}")
    return data


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a part, annotated or not, with its dotted path."""
    if isinstance(value, dict) and "value" not in value:
        for key, below in value.items():
            yield from leaves(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from leaves(below, f"{path}.{index}")
    else:
        yield path, value


def _values(value: Any) -> Any:
    if isinstance(value, dict):
        return value["value"] if "value" in value else {k: _values(v) for k, v in value.items()}
    return [_values(item) for item in value] if isinstance(value, list) else value
