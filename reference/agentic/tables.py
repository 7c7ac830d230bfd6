"""The rows of a world. They are never changed in place: a write returns new tables."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from reference.agentic.chance import drawn
from reference.agentic.domain import Entity, entities
from reference.agentic.values import draw_value

Row = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Row]]
"""Rows by entity and id."""


class Refused(Exception):  # noqa: N818  a tool's answer, not a fault of ours
    """A call that a tool cannot do; the model reads the text."""


def create_tables(names: list[str], rows: int, digits: int, seed: int) -> dict[str, dict[str, Row]]:
    """The rows of these entities and their owners, drawn from the seed: values that nobody can
    guess, ids with `digits` digits."""
    wanted: list[str] = []
    for name in names:
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
    # Fewer owners, so that each owns some rows.
    count = rows if entity.parent else max(3, rows // 2)
    numbers = draw.sample(range(10 ** (digits - 1), 10**digits), count)
    drawn_rows: dict[str, Row] = {}
    labels: set[Any] = set()
    for number in numbers:
        row = {field.name: draw_value(field, draw) for field in entity.fields}
        while row[entity.label.name] in labels:
            row[entity.label.name] = draw_value(entity.label, draw)
        labels.add(row[entity.label.name])
        if entity.parent:
            owner = entities()[entity.parent]
            row[owner.id_name] = draw.choice(list(made[entity.parent]))
        drawn_rows[f"{entity.prefix}-{number}"] = row
    return drawn_rows


def row_of(tables: Tables, kind: str, key: Any) -> Row:
    """A row. Raises Refused if it does not exist."""
    row = tables.get(kind, {}).get(key) if isinstance(key, str) else None
    if row is None:
        raise Refused(f"there is no {entities()[kind].words} {key!r}")
    return row


def put(tables: Tables, kind: str, key: str, row: Row) -> Tables:
    """The rows with this row, new or changed."""
    return {**tables, kind: {**tables.get(kind, {}), key: row}}


def without(tables: Tables, kind: str, key: str) -> Tables:
    """The rows without this row."""
    return {**tables, kind: {at: row for at, row in tables[kind].items() if at != key}}


def new_id(tables: Tables, kind: str, row: Row) -> str:
    """The id of a new row. It follows from the row, so the order of calls does not matter; it has
    as many digits as the others."""
    taken = tables.get(kind, {})
    prefix = entities()[kind].prefix
    digits = max((len(key.rpartition("-")[2]) for key in taken), default=4)
    span = 9 * 10 ** (digits - 1)
    number = zlib.crc32(repr(sorted(row.items())).encode())
    while (key := f"{prefix}-{10 ** (digits - 1) + number % span}") in taken:
        number += 1
    return key
