"""The rows of a world: a value of values, of which a write gives another one."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from reference.agentic.chance import drawn
from reference.agentic.domain import Entity, entities
from reference.agentic.values import draw_value

Row = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Row]]
"""Rows by kind and id. Never changed in place."""


class Refused(Exception):  # noqa: N818  what a tool tells, not a fault of ours
    """A tool's answer to a call that it cannot do; the text is for the model."""


def create_tables(kinds: list[str], rows: int, digits: int, seed: int) -> dict[str, dict[str, Row]]:
    """A world's rows, drawn from the seed: hidden values that nobody can guess, ids of so many
    digits. What a kind belongs to is there, too."""
    wanted: list[str] = []
    for name in kinds:
        parent = entities()[name].parent
        wanted += [parent, name] if parent else [name]
    made: dict[str, dict[str, Row]] = {}
    for name in dict.fromkeys(wanted):
        made[name] = _rows(entities()[name], made, rows, digits, seed)
    return made


def _rows(
    entity: Entity, made: Mapping[str, Mapping[str, Row]], rows: int, digits: int, seed: int
) -> dict[str, Row]:
    draw = drawn("rows", seed, entity.name)
    # Fewer of what others belong to, so that each has some.
    count = rows if entity.parent else max(3, rows // 2)
    numbers = draw.sample(range(10 ** (digits - 1), 10**digits), count)
    found: dict[str, Row] = {}
    labels: set[Any] = set()
    for number in numbers:
        row = {one.name: draw_value(one, draw) for one in entity.fields}
        while row[entity.label.name] in labels:
            row[entity.label.name] = draw_value(entity.label, draw)
        labels.add(row[entity.label.name])
        if entity.parent:
            owner = entities()[entity.parent]
            row[owner.id_name] = draw.choice(list(made[entity.parent]))
        found[f"{entity.prefix}-{number}"] = row
    return found


def row_of(tables: Tables, kind: str, key: Any) -> Row:
    """One row. Raises Refused where there is none."""
    found = tables.get(kind, {}).get(key) if isinstance(key, str) else None
    if found is None:
        raise Refused(f"there is no {entities()[kind].words} {key!r}")
    return found


def put(tables: Tables, kind: str, key: str, row: Row) -> Tables:
    """The rows with this one, new or changed."""
    return {**tables, kind: {**tables.get(kind, {}), key: row}}


def without(tables: Tables, kind: str, key: str) -> Tables:
    """The rows without one."""
    return {**tables, kind: {at: row for at, row in tables[kind].items() if at != key}}


def new_id(tables: Tables, kind: str, row: Row) -> str:
    """The id of a new row: it follows from the row, so that another order of calls gives the same
    end state; it has the digits of the others."""
    taken = tables.get(kind, {})
    prefix = entities()[kind].prefix
    digits = max((len(key.rpartition("-")[2]) for key in taken), default=4)
    span = 9 * 10 ** (digits - 1)
    number = zlib.crc32(repr(sorted(row.items())).encode())
    while (key := f"{prefix}-{10 ** (digits - 1) + number % span}") in taken:
        number += 1
    return key
