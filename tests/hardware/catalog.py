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
    found = whole(part)
    for key in path.split("."):
        found = found[key]
    return found


def plain(part: str) -> dict[str, Any]:
    """A part with every leaf reduced to its value and provenance left out; a node with its GPU."""
    data: dict[str, Any] = _values(whole(part))
    data.setdefault("name", part.partition("/")[2])
    if part.startswith("nodes/"):
        data["gpu"] = plain(f"gpus/{data['gpu']}")
    return data


def whole(part: str) -> dict[str, Any]:
    """A part over the one that it extends, every leaf with its annotation, completed by what the
    file of the leaf says about all its numbers."""
    data = read(CATALOG / f"{part}.yaml")
    said = {"source": data["source"]} if "source" in data else {}
    own = {key: value for key, value in data.items() if key not in _ABOUT}
    if own.get("kind") in KINDS:
        said["kind"] = own.pop("kind")
    own = _annotated(own, said)
    if "extends" not in data:
        return own
    base = whole(f"{part.partition('/')[0]}/{data['extends']}")
    base.pop("name", None)
    return _over(base, own)


_ABOUT = ("source", "aliases", "extends")


def _annotated(value: Any, said: dict[str, Any]) -> Any:
    """Every leaf as a mapping with `value`."""
    if isinstance(value, dict) and "value" not in value:
        return {key: _annotated(below, said) for key, below in value.items()}
    if isinstance(value, list):
        return [_annotated(item, said) for item in value]
    return said | (value if isinstance(value, dict) else {"value": value})


def _over(base: Any, own: dict[str, Any]) -> dict[str, Any]:
    """`own` over `base`: sections merge, leaves replace."""
    merged = dict(base)
    for key, value in own.items():
        section = isinstance(value, dict) and "value" not in value and key in merged
        merged[key] = _over(merged[key], value) if section else value
    return merged


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
