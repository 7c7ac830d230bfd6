"""Which of two things has the greater value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import number
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, choose, key_schema, tool
from reference.agentic.tables import Tables, row_of
from reference.agentic.tasks.plan import At, Look, Meant, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import kind_of

_TOLD = (
    "Compare two {e} records.",
    "Tells which of two {e} records has more, by {f}.",
    "Side by side: the values of both {e} records, and the difference of {f}.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    numbers = [one.name for one in entity.fields[1:] if kind_of(one).numeric]
    if not numbers or terse:
        return
    told = choose(_TOLD, terse, entity.name, "compare").format(
        e=entity.words, f=" or ".join(entity.field(one).words for one in numbers)
    )
    paired = number(entity.name, "paired") % 2 == 0
    key = key_schema(entity, terse)
    properties: dict[str, Any] = {"by": {"type": "string", "enum": numbers}}
    if paired:
        pair = {"type": "array", "items": key, "minItems": 2, "maxItems": 2}
        properties["pair"] = {**pair, "description": "The two ids."}
    else:
        properties |= {"first": key, "second": key}
    yield tool(
        entity,
        "read",
        f"{choose(('compare', 'contrast', 'weigh'), terse, entity.name)}_{entity.name}",
        told,
        properties,
        list(properties),
        terse=terse,
        operation="compare",
        paired=paired,
    )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    keys = given["pair"] if spec.binding["paired"] else [given["first"], given["second"]]
    values = [row_of(tables, entity.name, key)[given["by"]] for key in keys]
    if None in values:
        return tables, {"difference": None}
    return tables, {
        "values": values,
        "greater": keys[0] if values[0] >= values[1] else keys[1],
        "difference": round(abs(values[0] - values[1]), 2),
    }


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = at.entity
    if spec.entity != entity.name or spec.binding["paired"]:
        return None
    others = [key for key in look.tables[entity.name] if key != at.key]
    other = look.draw.choice(others)
    name = look.draw.choice(spec.parameters["properties"]["by"]["enum"])
    words = entity.field(name).words
    given: dict[str, Source] = {
        "by": Meant(name),
        "first": at.source,
        "second": Said("other", other, other, f"other {entity.words}"),
    }
    asked = f"tell me by how much the {words} of {at.words} and of {entity.words} <other> differ"
    facts = ((f"difference of {words}", ("difference",), "float", False),)
    return Use(given, asked, "compares both", facts=facts, vague={"other": "one that I shall name"})


OPERATION = Operation("compare", "read", _tools, _run, end=_end)
