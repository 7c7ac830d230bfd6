"""Raise or lower one number of one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.agentic.chance import number
from reference.agentic.domain import Entity, entities
from reference.agentic.operation import Arguments, Operation, a, choose, key_schema, tool
from reference.agentic.tables import Refused, Tables, put, row_of
from reference.agentic.tasks.plan import At, Look, Meant, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import kind_of

_TOLD = (
    "Raise or lower the {f} of {a}.",
    "Add an amount to the {f} of {a}, or take it away.",
    "Moves {f} of the {e} by a step and returns what it is now.",
    "Correct the {f}, relative to what is stored for the {e}.",
)


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    for one in entity.fields[1:]:
        if one.fixed or not kind_of(one).numeric:
            continue
        told = choose(_TOLD, terse, entity.name, one.name, "adjust told").format(
            a=a(entity.words), e=entity.words, f=one.words
        )
        whole = one.kind == "int"
        amount: dict[str, Any] = {"type": "integer" if whole else "number"}
        signed = not terse and number(entity.name, one.name, "signed") % 2 == 0
        properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse)}
        if signed:
            told_by = f"What is added to {one.words}; negative takes away."
            properties["delta"] = {**amount, "description": told_by}
        else:
            properties["amount"] = amount if terse else {**amount, "exclusiveMinimum": 0}
            properties["direction"] = {"type": "string", "enum": ["up", "down"]}
        verb = choose(("adjust", "shift", "correct", "step"), terse, entity.name, one.name)
        yield tool(
            entity,
            "update",
            f"{verb}_{entity.name}_{one.name}",
            told,
            properties,
            list(properties),
            terse=terse,
            operation="adjust",
            field=one.name,
            signed=signed,
        )


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    key, name = given[entity.id_name], spec.binding["field"]
    row = row_of(tables, entity.name, key)
    if row[name] is None:
        raise Refused(f"its {entity.field(name).words} was never set")
    if spec.binding["signed"]:
        step = given["delta"]
    else:
        step = given["amount"] if given["direction"] == "up" else -given["amount"]
    value = round(row[name] + step, 2)
    if entity.field(name).kind == "int":
        value = int(value)
    made = put(tables, entity.name, key, {**row, name: value})
    return made, {entity.id_name: key, name: value}


def _end(spec: ToolSpec, look: Look, at: At) -> Use | None:
    entity = at.entity
    if spec.entity != entity.name:
        return None
    one = entity.field(spec.binding["field"])
    low, high = float(one.given[0]), float(one.given[1])
    step = look.draw.uniform(0.05, 0.3) * (high - low)
    value = max(1, round(step)) if one.kind == "int" else round(max(0.01, step), 2)
    up = look.draw.random() < 0.6
    slot = f"step.{one.name}"
    signed = spec.binding["signed"]
    given: dict[str, Source] = {entity.id_name: at.source}
    if signed:
        # The sign follows from the words, the amount stands in them.
        given["delta"] = Said(slot, value if up else -value, str(value), "amount")
    else:
        given["amount"] = Said(slot, value, str(value), "amount")
        given["direction"] = Meant("up" if up else "down")
    words = f"{'raise' if up else 'lower'} the {one.words} of {at.words} by <{slot}>"
    facts = ((f"{one.words} now", (one.name,), one.kind, False),)
    asked = f"{words} and tell me what it is then"
    tell = look.draw.random() < 0.5
    vague = {slot: "some amount"}
    return Use(
        given,
        asked if tell else words,
        f"moves the {one.words}",
        facts=facts if tell else (),
        vague=vague,
    )


OPERATION = Operation("adjust", "update", _tools, _run, end=_end)
