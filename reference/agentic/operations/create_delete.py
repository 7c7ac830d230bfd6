"""Operations that create and delete rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from reference.agentic.chance import drawn, number
from reference.agentic.domain import Entity, children_of, entities
from reference.agentic.operations.base import (
    Arguments,
    CallEffect,
    Implied,
    Operation,
    PlannedCall,
    Source,
    Stated,
    Subject,
    TaskView,
    ToldFact,
    ToolDraft,
    a,
    key_schema,
)
from reference.agentic.tables import Refused, Tables, new_id, put, row_of, without
from reference.agentic.tool_spec import Effect, ToolSpec
from reference.agentic.values import draw_value, plain, say_value, schema_of

_CAUSES: Final = ("duplicate", "mistake", "customer_request", "expired")
"""Causes of a deletion."""


class Create(Operation):
    """Makes a new row."""

    name = "create"
    effect: ClassVar[Effect] = "create"
    of_owner = True

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool, with the label and some other values."""
        others = [field for field in entity.fields[1:] if not terse or plain(field, terse)]
        draw = drawn("create", entity.name)
        count = 1 if terse else draw.randint(1, 3)
        needed = [entity.label, *sorted(draw.sample(others, count), key=others.index)]
        optional = [] if terse else [field for field in others if field not in needed][:2]
        properties: dict[str, Any] = {
            field.name: schema_of(field, terse) for field in (*needed, *optional)
        }
        names = [field.name for field in needed]
        required = list(names)
        if entity.parent:
            owner = entities()[entity.parent]
            properties[owner.id_name] = key_schema(owner, terse)
            required.append(owner.id_name)
        words = ", ".join(field.words for field in needed).capitalize()
        described = self.describe(entity, terse, "create told", f=words)
        name = f"{self.verb(terse, entity.name, 'create')}_{entity.name}"
        yield ToolDraft(name, described, properties, required, {"needed": names})

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The new id."""
        entity = entities()[tool.entity]
        row = {field.name: given.get(field.name) for field in entity.fields}
        label = entity.label.name
        if any(other[label] == row[label] for other in tables.get(entity.name, {}).values()):
            raise Refused(f"there is already one with the {entity.label.words} {row[label]!r}")
        if entity.parent:
            owner = entities()[entity.parent]
            row_of(tables, owner.name, given[owner.id_name])
            row[owner.id_name] = given[owner.id_name]
        key = new_id(tables, entity.name, row)
        return put(tables, entity.name, key, row), {entity.id_name: key}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Add a row that belongs to the subject."""
        entity = entities()[tool.entity]
        needed = tool.binding["needed"]
        given: dict[str, Source] = {at.entity.id_name: at.source}
        taken = {row[entity.label.name] for row in view.rows(entity).values()}
        parts: list[str] = []
        for name in needed:
            field = entity.field(name)
            value = draw_value(field, view.draw)
            if name == entity.label.name and value in taken:
                return None
            given[name] = Stated(f"new.{name}", value, say_value(field, value), field.words)
            parts.append(f"{field.words} <new.{name}>")
        request = f"add {a(entity.words)} to {at.words}: {', '.join(parts)}"
        tell = not view.terse and view.draw.random() < 0.6
        return PlannedCall(
            given,
            f"{request}; and tell me its id" if tell else request,
            f"adds the {entity.words}",
            facts=(ToldFact("new id", (entity.id_name,), "id"),) if tell else (),
            vague={f"new.{needed[-1]}": "as I shall say"},
        )


class Remove(Operation):
    """Deletes a row."""

    name = "remove"
    effect: ClassVar[Effect] = "delete"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool."""
        properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse)}
        form = 3 if terse else number(entity.name, "remove form") % 4
        if form == 0:
            properties["confirm"] = {"const": True, "description": "Must be true."}
        if form == 1:
            properties["cause"] = {"type": "string", "enum": list(_CAUSES)}
        required = list(properties)
        if form == 2:
            keep = {"type": "integer", "minimum": 0, "maximum": 365, "default": 30}
            properties["keep_backup"] = {**keep, "description": "Days for which a backup is kept."}
        name = f"{self.verb(terse, entity.name, 'remove')}_{entity.name}"
        yield ToolDraft(name, self.describe(entity, terse, "remove told"), properties, required)

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The id. Refused while other rows belong to the row."""
        entity = entities()[tool.entity]
        key = given[entity.id_name]
        row_of(tables, entity.name, key)
        for child in children_of(entity):
            rows = tables.get(child.name, {}).values()
            count = sum(row[entity.id_name] == key for row in rows)
            if count:
                raise Refused(f"{count} {child.words} still belong to it")
        return without(tables, entity.name, key), {entity.id_name: key, "deleted": True}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Delete it."""
        given: dict[str, Source] = {at.entity.id_name: at.source}
        words = view.draw.choice((f"delete {at.words}", f"remove {at.words}"))
        vague: dict[str, str] = {}
        if "confirm" in tool.parameters["properties"]:
            given["confirm"] = Implied(True)
        if "cause" in tool.parameters["properties"]:
            cause = view.draw.choice(_CAUSES)
            given["cause"] = Stated("cause", cause, cause, "cause")
            words, vague = f"{words}, cause: <cause>", {"cause": "you may ask me"}
        return PlannedCall(given, words, f"deletes {at.words}", vague=vague)


OPERATIONS: Final = (Create, Remove)
