"""Find the id of one thing by the name that it is known by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import number
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, choose, tool
from reference.agentic.tables import Refused, Tables
from reference.agentic.tasks.plan import Look, Said, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import schema_of

_TOLD = (
    "Find the id of the {e} by {l}.",
    "Turns the {l} of a {e} into its id; the whole {l} must be given.",
    "Which {e} has this {l}? Answers with the id and nothing else.",
    "Resolve {l} to the identifier under which the {a} keeps the {e}.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    verb = choose(("find", "lookup", "resolve", "identify"), terse, entity.name, "lookup")
    label = entity.label
    told = choose(_TOLD, terse, entity.name, "lookup told").format(
        e=entity.words, l=label.words, a=entity.application.replace("_", " ")
    )
    properties = {label.name: schema_of(label, terse)}
    form = number(entity.name, "lookup form") % 3
    if not terse and form == 0:
        properties["ignore_case"] = {"type": "boolean", "description": "Capitals do not matter."}
    if not terse and form == 1:
        properties["timeout_s"] = {"type": "number", "exclusiveMinimum": 0, "maximum": 60}
    yield tool(
        entity,
        "read",
        f"{verb}_{entity.name}_by_{label.name}",
        told,
        properties,
        [label.name],
        terse=terse,
        operation="lookup",
    )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    wanted = given[entity.label.name]

    def plain(text: Any) -> Any:
        return text.casefold() if given.get("ignore_case") and isinstance(text, str) else text

    rows = tables.get(entity.name, {})
    found = [key for key, row in rows.items() if plain(row[entity.label.name]) == plain(wanted)]
    if not found:
        raise Refused(f"no {entity.words} has the {entity.label.words} {wanted!r}")
    return tables, {entity.id_name: found[0]}


def _start(spec: ToolSpec, look: Look) -> Use | None:
    entity = entities()[spec.entity]
    rows = look.tables.get(entity.name, {})
    if not rows:
        return None
    label = entity.label
    value = rows[look.draw.choice(list(rows))][label.name]
    if look.terse:
        words = f"{entity.words} {value}"
    else:
        words = look.draw.choice(
            (f"the {entity.words} {value}", f"the {entity.words} whose {label.words} is {value}")
        )
    said = Said(f"{entity.name}.{label.name}", value, str(value), f"{label.words}")
    finds = (entity.id_name,)
    return Use({label.name: said}, words, f"finds the {entity.words}", finds, entity.name)


OPERATION = Operation("lookup", "read", _tools, _run, start=_start)
