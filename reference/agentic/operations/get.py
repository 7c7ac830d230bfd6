"""Read one thing by its id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import number
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, a, choose, key_schema, tool
from reference.agentic.tables import Tables, row_of
from reference.agentic.tasks.plan import At, Look, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import kind_of, plain

_TOLD = (
    "Get {a}.",
    "Read every stored detail of {a}, given its id; nothing is changed.",
    "Open the record of {a} and return its {f}, {g} and the rest.",
    "Returns one {e} with its {f}; fails where the id is not known.",
    "Show {a} as it stands now, for instance its {g}.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    verb = choose(("get", "show", "read", "fetch", "open"), terse, entity.name, "get")
    told = choose(_TOLD, terse, entity.name, "get told")
    names = [one.name for one in entity.fields]
    told = told.format(
        a=a(entity.words), e=entity.words, f=entity.fields[-1].words, g=entity.fields[1].words
    )
    properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse)}
    form = number(entity.name, "form") % 4
    if not terse and form == 0:
        properties["fields"] = {
            "type": "array",
            "items": {"type": "string", "enum": names},
            "description": "Which details to return; all of them where this is left out.",
        }
    if not terse and form == 1:
        properties["detail"] = {"type": "string", "enum": ["short", "full"], "default": "full"}
    if not terse and form == 2:
        properties["language"] = {"type": "string", "pattern": "^[a-z]{2}$", "default": "en"}
    yield tool(
        entity,
        "read",
        f"{verb}_{entity.name}",
        told,
        properties,
        [entity.id_name],
        terse=terse,
        operation="get",
    )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    key = given[entity.id_name]
    row = row_of(tables, entity.name, key)
    wanted = given.get("fields") or list(row)
    if given.get("detail") == "short":
        wanted = [entity.label.name, *(name for name in row if name.endswith("_id"))]
    kept = {name: row[name] for name in row if name in wanted}
    return tables, {entity.id_name: key, **kept}


def _hop(spec: ToolSpec, _: Look, at: At) -> Use | None:
    """Up to what it belongs to."""
    entity = at.entity
    if spec.entity != entity.name or entity.parent is None:
        return None
    owner = entities()[entity.parent]
    return Use(
        {entity.id_name: at.source},
        f"the {owner.words} of {at.words}",
        f"reads {at.words}",
        (owner.id_name,),
        owner.name,
    )


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = at.entity
    if spec.entity != entity.name:
        return None
    # What was said to find it is no news.
    fields = [one for one in entity.fields[1:] if plain(one, look.terse)]
    one = look.draw.choice(fields)
    words = look.draw.choice(
        ("tell me the {f} of {t}", "find out the {f} of {t}", "look up the {f} of {t}")
    )
    return Use(
        {entity.id_name: at.source},
        words.format(f=one.words, t=at.words),
        f"reads {at.words}",
        facts=((one.words, (one.name,), one.kind, kind_of(one).choice),),
    )


OPERATION = Operation("get", "read", _tools, _run, hop=_hop, end=_end)
