"""How many things have some value, grouped by it where none is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, choose, key_schema, tool
from reference.agentic.tables import Tables
from reference.agentic.tasks.plan import At, Look, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import kind_of, plain, say_value, schema_of

_TOLD = (
    "Count {e} records by {f}.",
    "How many {e} records have this {f}; all groups where it is left out.",
    "Tally of {e} records per {f}, of one {o} where its id is given.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    if entity.parent is None:
        return
    owner = entities()[entity.parent]
    for one in entity.fields[1:]:
        if not kind_of(one).choice or not plain(one, terse):
            continue
        told = choose(_TOLD, terse, entity.name, one.name, "count").format(
            e=entity.words, f=one.words, o=owner.words
        )
        properties: dict[str, Any] = {
            owner.id_name: key_schema(owner, terse),
            one.name: schema_of(one, terse),
        }
        verb = choose(("count", "tally", "number_of"), terse, entity.name, one.name)
        yield tool(
            entity,
            "read",
            f"{verb}_{entity.name}_by_{one.name}",
            told,
            properties,
            [owner.id_name],
            terse=terse,
            operation="count",
            field=one.name,
        )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    owner, name = f"{entity.parent}_id", spec.binding["field"]
    rows = [row for row in tables.get(entity.name, {}).values() if row[owner] == given[owner]]
    if name in given:
        return tables, {"count": sum(row[name] == given[name] for row in rows)}
    field = entity.field(name)
    groups = Counter(say_value(field, row[name]) for row in rows)
    return tables, {"count": len(rows), "groups": dict(sorted(groups.items()))}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = entities()[spec.entity]
    if entity.parent != at.entity.name:
        return None
    one = entity.field(spec.binding["field"])
    own = [row for row in look.tables[entity.name].values() if row[at.entity.id_name] == at.key]
    if not own:
        return None
    value = look.draw.choice(own)[one.name]
    slot = f"counted.{one.name}"
    given: dict[str, Source] = {
        at.entity.id_name: at.source,
        one.name: Said(slot, value, say_value(one, value), one.words),
    }
    words = f"count the {entity.words} records of {at.words} whose {one.words} is <{slot}>"
    return Use(given, words, "counts them", facts=(("count", ("count",), "int", False),))


OPERATION = Operation("count", "read", _tools, _run, end=_end)
