"""A sum, mean, least or greatest of one number over things."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import number
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, choose, key_schema, tool
from reference.agentic.tables import Tables
from reference.agentic.tasks.plan import At, Look, Meant, Source, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import kind_of

_TOLD = (
    "Sum, mean, least or greatest {f}.",
    "Statistics of {f} over the {e} records, of one {o} or of all.",
    "Aggregates the {f}. The count of rows comes back, too.",
    "How much {f} is there in all, or on average, per {o}?",
)
_HOW = ("sum", "mean", "min", "max")
_SAID = {"sum": "total", "mean": "mean", "min": "least", "max": "greatest"}


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    numbers = [one for one in entity.fields[1:] if kind_of(one).numeric]
    if entity.parent is None:
        return
    owner = entities()[entity.parent]
    for one in numbers:
        told = choose(_TOLD, terse, entity.name, one.name, "total told").format(
            f=one.words, e=entity.words, o=owner.words
        )
        properties: dict[str, Any] = {
            owner.id_name: key_schema(owner, terse),
            "function": {"type": "string", "enum": list(_HOW)},
        }
        if not terse and number(entity.name, one.name, "round") % 2:
            properties["decimals"] = {"type": "integer", "minimum": 2, "maximum": 6}
        verb = choose(("total", "aggregate", "measure", "stats_of"), terse, entity.name, one.name)
        yield tool(
            entity,
            "read",
            f"{verb}_{entity.name}_{one.name}",
            told,
            properties,
            ["function"],
            terse=terse,
            operation="total",
            field=one.name,
        )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    owner = f"{entity.parent}_id"
    rows = tables.get(entity.name, {}).values()
    values = [
        row[spec.binding["field"]]
        for row in rows
        if (owner not in given or row[owner] == given[owner])
        and row[spec.binding["field"]] is not None
    ]
    if not values:
        return tables, {"count": 0, "value": None}
    how = given["function"]
    value = sum(values)
    if how == "mean":
        value = value / len(values)
    if how in ("min", "max"):
        value = min(values) if how == "min" else max(values)
    return tables, {"count": len(values), "value": round(value, 2)}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = entities()[spec.entity]
    if entity.parent != at.entity.name:
        return None
    one = entity.field(spec.binding["field"])
    how = look.draw.choice(_HOW)
    given: dict[str, Source] = {at.entity.id_name: at.source, "function": Meant(how)}
    words = f"tell me the {_SAID[how]} {one.words} over the {entity.words} records of {at.words}"
    facts = ((f"{_SAID[how]} {one.words}", ("value",), one.kind, False),)
    return Use(given, words, f"computes the {one.words}", facts=facts)


OPERATION = Operation("total", "read", _tools, _run, end=_end)
