"""Give one thing to another one that it belongs to from then on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import number
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, a, choose, key_schema, tool
from reference.agentic.tables import Tables, put, row_of
from reference.agentic.tasks.plan import At, Look, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec

_TOLD = (
    "Move {a} to another {o}.",
    "Hand {a} over: it belongs to the other {o} from then on.",
    "Reassign the {e}; both ids must be known.",
    "Transfers one {e} between two {o} records of the {p}.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    if entity.parent is None:
        return
    owner = entities()[entity.parent]
    told = choose(_TOLD, terse, entity.name, "move told").format(
        a=a(entity.words), e=entity.words, o=owner.words, p=entity.application.replace("_", " ")
    )
    properties: dict[str, Any] = {
        entity.id_name: key_schema(entity, terse),
        owner.id_name: key_schema(owner, terse),
    }
    if not terse and number(entity.name, "move") % 2:
        properties["when"] = {
            "anyOf": [{"type": "string", "format": "date"}, {"const": "now"}],
            "description": "A day, or `now`.",
        }
    verb = choose(("move", "transfer", "reassign", "hand_over"), terse, entity.name, "move")
    yield tool(
        entity,
        "update",
        f"{verb}_{entity.name}",
        told,
        properties,
        [entity.id_name, owner.id_name],
        terse=terse,
        operation="move",
    )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    owner = entities()[entity.parent or ""]
    key, target = given[entity.id_name], given[owner.id_name]
    row = row_of(tables, entity.name, key)
    row_of(tables, owner.name, target)
    made = put(tables, entity.name, key, {**row, owner.id_name: target})
    return made, {entity.id_name: key, owner.id_name: target}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = at.entity
    if spec.entity != entity.name or entity.parent is None:
        return None
    owner = entities()[entity.parent]
    now = look.tables[entity.name][at.key][owner.id_name]
    others = [key for key in look.tables[owner.name] if key != now]
    if not others:
        return None
    target = look.draw.choice(others)
    slot = f"target.{owner.name}"
    given: dict[str, Source] = {
        entity.id_name: at.source,
        owner.id_name: Said(slot, target, target, f"{owner.words} id"),
    }
    words = f"move {at.words} to {owner.words} <{slot}>"
    return Use(given, words, f"moves {at.words}", vague={slot: "another one"})


OPERATION = Operation("move", "update", _tools, _run, end=_end)
