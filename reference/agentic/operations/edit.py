"""Change several values of one thing in one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import drawn, number
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, a, choose, key_schema, tool
from reference.agentic.tables import Refused, Tables, put, row_of
from reference.agentic.tasks.plan import At, Look, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import draw_value, say_value, schema_of

_TOLD = (
    "Edit {a}.",
    "Change any of {f} of {a}; what is left out stays.",
    "Partial update of the {e}: only the values that are given are written ({f}).",
    "Amend {a} in one go. Known values: {f}.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    free = [one for one in entity.fields[1:] if not one.fixed]
    if terse or len(free) < 2:
        return
    for size in {2, min(4, len(free))}:
        draw = drawn("edit", entity.name, size)
        chosen = sorted(draw.sample(free, size), key=free.index)
        values = {one.name: schema_of(one) for one in chosen}
        nested = number(entity.name, size, "nested") % 2 == 0
        properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse)}
        if nested:
            properties["changes"] = {
                "type": "object",
                "properties": values,
                "additionalProperties": False,
            }
        else:
            properties |= values
        told = choose(_TOLD, terse, entity.name, size, "edit told").format(
            a=a(entity.words), e=entity.words, f=", ".join(one.words for one in chosen)
        )
        verb = choose(("edit", "modify", "amend", "revise"), terse, entity.name, size)
        yield tool(
            entity,
            "update",
            f"{verb}_{entity.name}_{'_'.join(one.name for one in chosen[:2])}",
            told,
            properties,
            [entity.id_name, "changes"] if nested else [entity.id_name],
            terse=terse,
            operation="edit",
            fields=[one.name for one in chosen],
            nested=nested,
        )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    key = given[entity.id_name]
    row = row_of(tables, entity.name, key)
    values = given["changes"] if spec.binding["nested"] else given
    changes = {name: values[name] for name in spec.binding["fields"] if name in values}
    if not changes:
        raise Refused("nothing to change was given")
    made = put(tables, entity.name, key, {**row, **changes})
    return made, {entity.id_name: key, "changed": sorted(changes)}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = at.entity
    if spec.entity != entity.name or spec.binding["nested"]:
        return None
    given: dict[str, Source] = {entity.id_name: at.source}
    parts: list[str] = []
    now = look.tables[entity.name][at.key]
    for name in spec.binding["fields"][:2]:
        one = entity.field(name)
        value = draw_value(one, look.draw)
        if value == now[name]:
            return None
        given[name] = Said(f"new.{name}", value, say_value(one, value), f"new {one.words}")
        parts.append(f"the {one.words} to <new.{name}>")
    words = f"change two things of {at.words}: {' and '.join(parts)}"
    vague = {f"new.{spec.binding['fields'][0]}": "another value"}
    return Use(given, words, f"edits {at.words}", vague=vague)


OPERATION = Operation("edit", "update", _tools, _run, end=_end)
