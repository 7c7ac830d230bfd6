"""Delete one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import number
from reference.agentic.domain import Entity, children_of, entities
from reference.agentic.operation import Arguments, Operation, a, choose, key_schema, tool
from reference.agentic.tables import Refused, Tables, row_of, without
from reference.agentic.tasks.plan import At, Look, Meant, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec

_TOLD = (
    "Delete {a}.",
    "Remove {a} for good; this cannot be undone.",
    "Takes the {e} out of the {p}. Refused while others belong to it.",
    "Erase one {e} by its id.",
)
_WHY = ("duplicate", "mistake", "customer_request", "expired")


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    verb = choose(("delete", "remove", "erase", "cancel"), terse, entity.name, "remove")
    told = choose(_TOLD, terse, entity.name, "remove told").format(
        a=a(entity.words), e=entity.words, p=entity.application.replace("_", " ")
    )
    properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse)}
    form = 3 if terse else number(entity.name, "remove form") % 4
    if form == 0:
        properties["confirm"] = {"const": True, "description": "Must be true."}
    if form == 1:
        properties["cause"] = {"type": "string", "enum": list(_WHY)}
    if form == 2:
        keep = {"type": "integer", "minimum": 0, "maximum": 365, "default": 30}
        properties["keep_backup"] = {**keep, "description": "Days for which a backup is kept."}
    required = [name for name in properties if name != "keep_backup"]
    yield tool(
        entity,
        "delete",
        f"{verb}_{entity.name}",
        told,
        properties,
        required,
        terse=terse,
        operation="remove",
    )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    key = given[entity.id_name]
    row_of(tables, entity.name, key)
    for child in children_of(entity):
        own = [at for at, row in tables.get(child.name, {}).items() if row[entity.id_name] == key]
        if own:
            raise Refused(f"{len(own)} {child.words} still belong to it")
    return without(tables, entity.name, key), {entity.id_name: key, "deleted": True}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = at.entity
    if spec.entity != entity.name:
        return None
    given: dict[str, Source] = {entity.id_name: at.source}
    words = look.draw.choice((f"delete {at.words}", f"remove {at.words}"))
    vague: dict[str, str] = {}
    if "confirm" in spec.parameters["properties"]:
        given["confirm"] = Meant(True)
    if "cause" in spec.parameters["properties"]:
        cause = look.draw.choice(_WHY)
        given["cause"] = Said("cause", cause, cause, "cause")
        words, vague = f"{words}, cause: <cause>", {"cause": "you may ask me"}
    return Use(given, words, f"deletes {at.words}", vague=vague)


OPERATION = Operation("remove", "delete", _tools, _run, end=_end)
