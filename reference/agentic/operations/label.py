"""Add words of a list to one thing, or take them away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, a, choose, key_schema, tool
from reference.agentic.tables import Tables, put, row_of
from reference.agentic.tasks.plan import At, Look, Meant, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec

_TOLD = (
    "Add or take {f} of {a}.",
    "Mark {a} with one of the known {f}, or lift the mark.",
    "Switches one of the {f} of the {e} on or off.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    for one in entity.fields:
        if one.kind != "tags":
            continue
        told = choose(_TOLD, terse, entity.name, one.name, "label").format(
            a=a(entity.words), e=entity.words, f=one.words
        )
        properties: dict[str, Any] = {
            entity.id_name: key_schema(entity, terse),
            "word": {"type": "string", "enum": list(one.given)},
            "action": {"type": "string", "enum": ["add", "take"], "default": "add"},
        }
        yield tool(
            entity,
            "update",
            f"{choose(('mark', 'label', 'flag'), terse, entity.name)}_{entity.name}_{one.name}",
            told,
            properties,
            [entity.id_name, "word"],
            terse=terse,
            operation="label",
            field=one.name,
        )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    key, name = given[entity.id_name], spec.binding["field"]
    row = row_of(tables, entity.name, key)
    words = set(row[name] or ())
    words = words - {given["word"]} if given.get("action") == "take" else words | {given["word"]}
    made = put(tables, entity.name, key, {**row, name: sorted(words)})
    return made, {entity.id_name: key, name: sorted(words)}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = at.entity
    if spec.entity != entity.name:
        return None
    one = entity.field(spec.binding["field"])
    word = look.draw.choice(one.given)
    has = word in look.tables[entity.name][at.key][one.name]
    given: dict[str, Source] = {
        entity.id_name: at.source,
        "word": Said("word", word, word, f"which of the {one.words}"),
        "action": Meant("take" if has else "add"),
    }
    asked = f"take <word> from the {one.words} of" if has else f"add <word> to the {one.words} of"
    return Use(given, f"{asked} {at.words}", f"marks {at.words}", vague={"word": "one"})


OPERATION = Operation("label", "update", _tools, _run, end=_end)
