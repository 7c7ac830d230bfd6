"""Attach a note to one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import number
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, a, choose, key_schema, tool
from reference.agentic.tables import Tables, put, row_of
from reference.agentic.tasks.plan import At, Look, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.words import words as words_of

_TOLD = (
    "Add a note to {a}.",
    "Leave a remark on {a}; earlier remarks stay.",
    "Writes a comment under the {e} and returns how many there are.",
    "Append text to the journal of the {e}, which everyone of the {p} reads.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    told = choose(_TOLD, terse, entity.name, "note told").format(
        a=a(entity.words), e=entity.words, p=entity.application.replace("_", " ")
    )
    properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse)}
    form = 2 if terse else number(entity.name, "note form") % 3
    text = {"type": "string"} if terse else {"type": "string", "minLength": 3, "maxLength": 400}
    properties["note"] = text
    if form == 0:
        properties["author"] = {"type": "object", "properties": {"name": {"type": "string"}}}
    if form == 1:
        properties["pinned"] = {"type": ["boolean", "null"], "default": None}
    verb = choose(("note", "annotate", "comment_on", "remark_on"), terse, entity.name, "note")
    yield tool(
        entity,
        "update",
        f"{verb}_{entity.name}",
        told,
        properties,
        [entity.id_name, "note"],
        terse=terse,
        operation="note",
    )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    key = given[entity.id_name]
    row = row_of(tables, entity.name, key)
    notes = [*row.get("notes", []), given["note"]]
    made = put(tables, entity.name, key, {**row, "notes": notes})
    return made, {entity.id_name: key, "notes": len(notes)}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = at.entity
    if spec.entity != entity.name:
        return None
    text = look.draw.choice(words_of("note"))
    given: dict[str, Source] = {
        entity.id_name: at.source,
        "note": Said("note", text, text, "text of the note"),
    }
    words = f"add the note <note> to {at.words}"
    return Use(given, words, f"notes it on {at.words}", vague={"note": "that I have in mind"})


OPERATION = Operation("note", "update", _tools, _run, end=_end)
