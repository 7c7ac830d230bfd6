"""Make a new thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import drawn
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, a, choose, key_schema, tool
from reference.agentic.tables import Refused, Tables, new_id, put, row_of
from reference.agentic.tasks.plan import At, Look, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import draw_value, plain, say_value, schema_of

_TOLD = (
    "Add {a}.",
    "Create {a} and return its new id. {f} must be given.",
    "Registers {a}; what is left out stays empty.",
    "Put a new {e} into the {p}, with {f}.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    others = [one for one in entity.fields[1:] if not terse or plain(one, terse)]
    draw = drawn("create", entity.name)
    count = 1 if terse else draw.randint(1, 3)
    needed = [entity.label, *sorted(draw.sample(others, count), key=others.index)]
    optional = [] if terse else [one for one in others if one not in needed][:2]
    properties: dict[str, Any] = {one.name: schema_of(one, terse) for one in (*needed, *optional)}
    required = [one.name for one in needed]
    if entity.parent:
        owner = entities()[entity.parent]
        properties[owner.id_name] = key_schema(owner, terse)
        required.append(owner.id_name)
    told = choose(_TOLD, terse, entity.name, "create told").format(
        a=a(entity.words),
        e=entity.words,
        f=", ".join(one.words for one in needed).capitalize(),
        p=entity.application.replace("_", " "),
    )
    verb = choose(("add", "create", "register", "book", "new"), terse, entity.name, "create")
    yield tool(
        entity,
        "create",
        f"{verb}_{entity.name}",
        told,
        properties,
        required,
        terse=terse,
        operation="create",
        needed=[one.name for one in needed],
    )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    row = {one.name: given.get(one.name) for one in entity.fields}
    label = entity.label.name
    if any(other[label] == row[label] for other in tables.get(entity.name, {}).values()):
        raise Refused(f"there is already one with the {entity.label.words} {row[label]!r}")
    if entity.parent:
        owner = entities()[entity.parent]
        row_of(tables, owner.name, given[owner.id_name])
        row[owner.id_name] = given[owner.id_name]
    key = new_id(tables, entity.name, row)
    return put(tables, entity.name, key, row), {entity.id_name: key}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    """A new one that belongs to what was found."""
    entity = entities()[spec.entity]
    if entity.parent != at.entity.name:
        return None
    given: dict[str, Source] = {at.entity.id_name: at.source}
    taken = {row[entity.label.name] for row in look.tables[entity.name].values()}
    parts: list[str] = []
    for name in spec.binding["needed"]:
        one = entity.field(name)
        value = draw_value(one, look.draw)
        if name == entity.label.name and value in taken:
            return None
        given[name] = Said(f"new.{name}", value, say_value(one, value), one.words)
        parts.append(f"{one.words} <new.{name}>")
    asked = f"add {a(entity.words)} to {at.words}: {', '.join(parts)}"
    vague = {f"new.{spec.binding['needed'][-1]}": "as I shall say"}
    tell = not look.terse and look.draw.random() < 0.6
    facts = (("new id", (entity.id_name,), "id", False),) if tell else ()
    words = f"{asked}; and tell me its id" if tell else asked
    return Use(given, words, f"adds the {entity.words}", facts=facts, vague=vague)


OPERATION = Operation("create", "create", _tools, _run, end=_end)
