"""Set one value of several things in one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, choose, key_schema, tool
from reference.agentic.tables import Tables, put, row_of
from reference.agentic.tasks.plan import At, Look, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import kind_of, say_value, schema_of

_TOLD = (
    "Set the {f} of several {e} records.",
    "Batch update: all the {e} records that are listed get the same {f}.",
    "Writes one {f} to up to ten {e} records; none is written where one id is wrong.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    for one in entity.fields[1:]:
        if terse or one.fixed or not kind_of(one).choice or kind_of(one).nested:
            continue
        told = choose(_TOLD, terse, entity.name, one.name, "bulk").format(
            e=entity.words, f=one.words
        )
        keys = {"type": "array", "items": key_schema(entity, terse), "minItems": 1, "maxItems": 10}
        yield tool(
            entity,
            "update",
            f"{choose(('bulk', 'batch', 'mass'), terse, entity.name)}_{entity.name}_{one.name}",
            told,
            {"ids": keys, one.name: schema_of(one, terse)},
            ["ids", one.name],
            terse=terse,
            operation="bulk",
            field=one.name,
        )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    name = spec.binding["field"]
    made = tables
    for key in given["ids"]:
        row = row_of(made, entity.name, key)
        made = put(made, entity.name, key, {**row, name: given[name]})
    return made, {"updated": len(given["ids"])}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    """What was found, and another one that the user names."""
    entity = at.entity
    if spec.entity != entity.name or not isinstance(at.source, Said):
        return None
    one = entity.field(spec.binding["field"])
    rows = look.tables[entity.name]
    other = look.draw.choice([key for key in rows if key != at.key])
    now = {str(rows[at.key][one.name]), str(rows[other][one.name])}
    choices = [True, False] if one.kind == "bool" else list(one.given)
    fit = [value for value in choices if str(value) not in now]
    if not fit:
        return None
    value = look.draw.choice(fit)
    given: dict[str, Source] = {
        "ids": Said("both", [at.key, other], f"{at.key} and {other}", "which ones"),
        one.name: Said("new", value, say_value(one, value), f"new {one.words}"),
    }
    words = f"set the {one.words} of {entity.words} records {at.key} and {other} to <new>"
    return Use(given, words, "sets both", vague={"new": "another one"})


OPERATION = Operation("bulk", "update", _tools, _run, end=_end)
