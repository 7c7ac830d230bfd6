"""Set one value of one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import number
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, a, choose, key_schema, tool
from reference.agentic.tables import Tables, put, row_of
from reference.agentic.tasks.plan import At, Look, Said, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import draw_value, plain, say_value, schema_of

_TOLD = (
    "Set the {f} of {a}.",
    "Give {a} another {f}; the old one is lost.",
    "Change what is stored as {f} of the {e}. Takes effect at once.",
    "Overwrites {f}. The {e} must exist, and its {g} stays.",
    "Update the {f} of one {e} and return the old and the new value.",
)
_VERBS = ("set", "change", "update", "assign", "put")


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    for one in entity.fields[1:]:
        if one.fixed or (terse and not plain(one, terse)):
            continue
        told = choose(_TOLD, terse, entity.name, one.name, "set told").format(
            a=a(entity.words), e=entity.words, f=one.words, g=entity.label.words
        )
        properties = {entity.id_name: key_schema(entity, terse), one.name: schema_of(one, terse)}
        form = number(entity.name, one.name, "form") % 5
        if not terse:
            properties |= _extra(form, one.words)
        verb = choose(_VERBS, terse, entity.name, one.name)
        yield tool(
            entity,
            "update",
            f"{verb}_{entity.name}_{one.name}",
            told,
            properties,
            [entity.id_name, one.name],
            terse=terse,
            operation="assign",
            field=one.name,
        )


def _extra(form: int, words: str) -> dict[str, Any]:
    """An option that tools of real services have, and tasks seldom need."""
    if form == 0:
        return {"reason": {"type": "string", "maxLength": 80, "description": f"Why {words} moves."}}
    if form == 1:
        return {"notify": {"type": "array", "items": {"type": "string", "format": "email"}}}
    if form == 2:
        channel = {"type": "string", "enum": ["app", "mail"]}
        keys = {"channel": channel, "silent": {"type": "boolean"}}
        return {"options": {"type": "object", "properties": keys}}
    if form == 3:
        return {"expected_old": {"type": ["string", "number", "null"]}}
    return {}


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    key, name = given[entity.id_name], spec.binding["field"]
    row = row_of(tables, entity.name, key)
    made = put(tables, entity.name, key, {**row, name: given[name]})
    return made, {entity.id_name: key, "old": row[name], name: given[name]}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = at.entity
    if spec.entity != entity.name:
        return None
    one = entity.field(spec.binding["field"])
    now = look.tables[entity.name][at.key][one.name]
    value = next((new for _ in range(9) if (new := draw_value(one, look.draw)) != now), None)
    if value is None:
        return None
    slot = f"new.{one.name}"
    said = Said(slot, value, say_value(one, value), f"new {one.words}")
    words = look.draw.choice(("set the {f} of {t} to <v>", "change the {f} of {t} to <v>"))
    words = words.format(f=one.words, t=at.words).replace("<v>", f"<{slot}>")
    given = {entity.id_name: at.source, one.name: said}
    return Use(given, words, f"sets the {one.words}", vague={slot: "something else"})


OPERATION = Operation("assign", "update", _tools, _run, end=_end)
