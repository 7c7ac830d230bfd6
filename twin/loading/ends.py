"""Numbers of a scenario that have a range, and the scenario with another number in its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twin.scenario import Scenario
from twin.spec.base import Spec


def ranges(scenario: Scenario, roots: tuple[str, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Path, low end and high end of every number below these paths whose source gives a range.
    Numbers in lists (reserves of memory) have no key of their own, and are left out."""
    for path, known in scenario.ledger.items():
        in_a_list = any(key.isdigit() for key in path.split("."))
        if known.range is not None and path.startswith(roots) and not in_a_list:
            yield path, known.range[0], known.range[1]


def with_number(scenario: Scenario, path: str, value: Any) -> Scenario:
    """The scenario with another number at a path, its section checked again alone.

    Raises pydantic's `ValidationError` where the section does not allow it.
    """
    section, *keys = path.split(".")
    own: Spec = getattr(scenario, section)
    dumped = own.model_dump(mode="json", by_alias=True)
    inner: dict[str, Any] = dumped
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    changed: dict[str, Any] = {section: type(own).model_validate(dumped)}
    return scenario.model_copy(update=changed)
