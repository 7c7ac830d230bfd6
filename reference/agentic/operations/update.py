"""Operations that change existing rows: values, tags, notes, owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from reference.agentic.chance import drawn, number
from reference.agentic.domain import Entity, Field, entities
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
    change,
    key_schema,
)
from reference.agentic.tables import Refused, Tables, row_of
from reference.agentic.texts import words as word_list
from reference.agentic.tool_spec import Effect, ToolSpec
from reference.agentic.values import draw_value, kind_of, plain, say_value, schema_of


class Updating(Operation):
    """An operation that changes an existing row."""

    effect: ClassVar[Effect] = "update"


class Adjust(Updating):
    """Raises or lowers a number."""

    name = "adjust"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool per number."""
        for field in entity.fields[1:]:
            if field.fixed or not kind_of(field).numeric:
                continue
            amount: dict[str, Any] = {"type": "integer" if field.kind == "int" else "number"}
            signed = not terse and number(entity.name, field.name, "signed") % 2 == 0
            properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse)}
            if signed:
                about = f"What is added to {field.words}; negative takes away."
                properties["delta"] = {**amount, "description": about}
            else:
                properties["amount"] = amount if terse else {**amount, "exclusiveMinimum": 0}
                properties["direction"] = {"type": "string", "enum": ["up", "down"]}
            verb = self.verb(terse, entity.name, field.name)
            described = self.describe(entity, terse, field.name, "adjust told", f=field.words)
            name, binding = (
                f"{verb}_{entity.name}_{field.name}",
                {"field": field.name, "signed": signed},
            )
            yield ToolDraft(name, described, properties, list(properties), binding)

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The new value."""
        entity = entities()[tool.entity]
        key, field = given[entity.id_name], entity.field(tool.binding["field"])
        old = row_of(tables, entity.name, key)[field.name]
        if old is None:
            raise Refused(f"its {field.words} was never set")
        if tool.binding["signed"]:
            step = given["delta"]
        else:
            step = given["amount"] if given["direction"] == "up" else -given["amount"]
        value = round(old + step, 2)
        value = int(value) if field.kind == "int" else value
        return change(tables, entity, key, **{field.name: value}), {
            entity.id_name: key,
            field.name: value,
        }

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Raise or lower it by an amount."""
        entity = at.entity
        field = entity.field(tool.binding["field"])
        low, high = float(field.given[0]), float(field.given[1])
        step = view.draw.uniform(0.05, 0.3) * (high - low)
        value = max(1, round(step)) if field.kind == "int" else round(max(0.01, step), 2)
        up = view.draw.random() < 0.6
        slot = f"step.{field.name}"
        given: dict[str, Source] = {entity.id_name: at.source}
        if tool.binding["signed"]:
            # The words imply the sign and state the amount.
            given["delta"] = Stated(slot, value if up else -value, str(value), "amount")
        else:
            given["amount"] = Stated(slot, value, str(value), "amount")
            given["direction"] = Implied("up" if up else "down")
        words = f"{'raise' if up else 'lower'} the {field.words} of {at.words} by <{slot}>"
        facts = (ToldFact(f"{field.words} now", (field.name,), field.kind),)
        tell = view.draw.random() < 0.5
        return PlannedCall(
            given,
            f"{words} and tell me what it is then" if tell else words,
            f"moves the {field.words}",
            facts=facts if tell else (),
            vague={slot: "some amount"},
        )


class Assign(Updating):
    """Sets a value."""

    name = "assign"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool per field that may change."""
        for field in entity.fields[1:]:
            if field.fixed or (terse and not plain(field, terse)):
                continue
            properties = {
                entity.id_name: key_schema(entity, terse),
                field.name: schema_of(field, terse),
            }
            if not terse:
                properties |= _assign_option(number(entity.name, field.name, "form") % 5, field)
            verb = self.verb(terse, entity.name, field.name)
            described = self.describe(entity, terse, field.name, "set told", f=field.words)
            name, required = f"{verb}_{entity.name}_{field.name}", [entity.id_name, field.name]
            yield ToolDraft(name, described, properties, required, {"field": field.name})

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The old value and the new value."""
        entity = entities()[tool.entity]
        key, name = given[entity.id_name], tool.binding["field"]
        old = row_of(tables, entity.name, key)[name]
        made = change(tables, entity, key, **{name: given[name]})
        return made, {entity.id_name: key, "old": old, name: given[name]}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Set it to another value."""
        entity = at.entity
        field = entity.field(tool.binding["field"])
        now = view.rows(entity)[at.key][field.name]
        drawn_values = (draw_value(field, view.draw) for _ in range(9))
        value = next((drawn_value for drawn_value in drawn_values if drawn_value != now), None)
        if value is None:
            return None
        slot = f"new.{field.name}"
        stated = Stated(slot, value, say_value(field, value), f"new {field.words}")
        words = view.draw.choice(("set the {f} of {t} to <v>", "change the {f} of {t} to <v>"))
        words = words.format(f=field.words, t=at.words).replace("<v>", f"<{slot}>")
        given = {entity.id_name: at.source, field.name: stated}
        vague = {slot: "something else"}
        return PlannedCall(given, words, f"sets the {field.words}", vague=vague)


def _assign_option(form: int, field: Field) -> dict[str, Any]:
    """An optional argument that tasks seldom need."""
    if form == 0:
        about = f"Why {field.words} moves."
        return {"reason": {"type": "string", "maxLength": 80, "description": about}}
    if form == 1:
        return {"notify": {"type": "array", "items": {"type": "string", "format": "email"}}}
    if form == 2:
        channel = {"type": "string", "enum": ["app", "mail"]}
        keys = {"channel": channel, "silent": {"type": "boolean"}}
        return {"options": {"type": "object", "properties": keys}}
    return {"expected_old": {"type": ["string", "number", "null"]}} if form == 3 else {}


class Bulk(Updating):
    """Sets one value of several rows."""

    name = "bulk"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool per choice that may change."""
        for field in entity.fields[1:]:
            if terse or field.fixed or not kind_of(field).choice or kind_of(field).nested:
                continue
            key = key_schema(entity, terse)
            keys = {"type": "array", "items": key, "minItems": 1, "maxItems": 10}
            properties = {"ids": keys, field.name: schema_of(field, terse)}
            name = f"{self.verb(terse, entity.name)}_{entity.name}_{field.name}"
            described = self.describe(entity, terse, field.name, "bulk", f=field.words)
            yield ToolDraft(name, described, properties, list(properties), {"field": field.name})

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The number of rows."""
        entity = entities()[tool.entity]
        name = tool.binding["field"]
        for key in given["ids"]:
            tables = change(tables, entity, key, **{name: given[name]})
        return tables, {"updated": len(given["ids"])}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Set it for the subject and another row that the user names."""
        entity = at.entity
        if not isinstance(at.source, Stated):
            return None
        field = entity.field(tool.binding["field"])
        rows = view.rows(entity)
        other = view.draw.choice([key for key in rows if key != at.key])
        now = {str(rows[at.key][field.name]), str(rows[other][field.name])}
        choices = [True, False] if field.kind == "bool" else list(field.given)
        fit = [value for value in choices if str(value) not in now]
        if not fit:
            return None
        value = view.draw.choice(fit)
        given: dict[str, Source] = {
            "ids": Stated("both", [at.key, other], f"{at.key} and {other}", "which ones"),
            field.name: Stated("new", value, say_value(field, value), f"new {field.words}"),
        }
        words = f"set the {field.words} of {entity.words} records {at.key} and {other} to <new>"
        return PlannedCall(given, words, "sets both", vague={"new": "another one"})


class Edit(Updating):
    """Changes several values of a row."""

    name = "edit"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """Tools for two and for up to four fields that may change."""
        free = [field for field in entity.fields[1:] if not field.fixed]
        if terse or len(free) < 2:
            return
        for size in {2, min(4, len(free))}:
            draw = drawn("edit", entity.name, size)
            chosen = sorted(draw.sample(free, size), key=free.index)
            yield self._draft(entity, chosen, size)

    def _draft(self, entity: Entity, chosen: list[Field], size: int) -> ToolDraft:
        values = {field.name: schema_of(field) for field in chosen}
        nested = number(entity.name, size, "nested") % 2 == 0
        properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse=False)}
        if nested:
            changes = {"type": "object", "properties": values, "additionalProperties": False}
            properties["changes"] = changes
        else:
            properties |= values
        words = ", ".join(field.words for field in chosen)
        name = f"{self.verb(False, entity.name, size)}_{entity.name}_{'_'.join(list(values)[:2])}"
        described = self.describe(entity, False, size, "edit told", f=words)
        required = [entity.id_name, "changes"] if nested else [entity.id_name]
        binding = {"fields": list(values), "nested": nested}
        return ToolDraft(name, described, properties, required, binding)

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The names of the changed fields."""
        entity = entities()[tool.entity]
        key = given[entity.id_name]
        row_of(tables, entity.name, key)
        values = given["changes"] if tool.binding["nested"] else given
        changes = {name: values[name] for name in tool.binding["fields"] if name in values}
        if not changes:
            raise Refused("nothing to change was given")
        made = change(tables, entity, key, **changes)
        return made, {entity.id_name: key, "changed": sorted(changes)}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Change two values."""
        entity = at.entity
        if tool.binding["nested"]:
            return None
        given: dict[str, Source] = {entity.id_name: at.source}
        parts: list[str] = []
        now = view.rows(entity)[at.key]
        for name in tool.binding["fields"][:2]:
            field = entity.field(name)
            value = draw_value(field, view.draw)
            if value == now[name]:
                return None
            text = say_value(field, value)
            given[name] = Stated(f"new.{name}", value, text, f"new {field.words}")
            parts.append(f"the {field.words} to <new.{name}>")
        words = f"change two things of {at.words}: {' and '.join(parts)}"
        vague = {f"new.{tool.binding['fields'][0]}": "another value"}
        return PlannedCall(given, words, f"edits {at.words}", vague=vague)


class Label(Updating):
    """Adds a tag to a row, or takes it away."""

    name = "label"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool per field of tags."""
        for field in entity.fields:
            if field.kind != "tags":
                continue
            properties: dict[str, Any] = {
                entity.id_name: key_schema(entity, terse),
                "word": {"type": "string", "enum": list(field.given)},
                "action": {"type": "string", "enum": ["add", "take"], "default": "add"},
            }
            name = f"{self.verb(terse, entity.name)}_{entity.name}_{field.name}"
            described = self.describe(entity, terse, field.name, "label", f=field.words)
            required, binding = [entity.id_name, "word"], {"field": field.name}
            yield ToolDraft(name, described, properties, required, binding)

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """All tags of the row."""
        entity = entities()[tool.entity]
        key, name = given[entity.id_name], tool.binding["field"]
        tags = set(row_of(tables, entity.name, key)[name] or ())
        tags = tags - {given["word"]} if given.get("action") == "take" else tags | {given["word"]}
        made = change(tables, entity, key, **{name: sorted(tags)})
        return made, {entity.id_name: key, name: sorted(tags)}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Add a tag, or take it if the row has it."""
        entity = at.entity
        field = entity.field(tool.binding["field"])
        word = view.draw.choice(field.given)
        has = word in view.rows(entity)[at.key][field.name]
        given: dict[str, Source] = {
            entity.id_name: at.source,
            "word": Stated("word", word, word, f"which of the {field.words}"),
            "action": Implied("take" if has else "add"),
        }
        act = "take <word> from" if has else "add <word> to"
        words = f"{act} the {field.words} of {at.words}"
        return PlannedCall(given, words, f"marks {at.words}", vague={"word": "one"})


class Move(Updating):
    """Gives a row to another owner."""

    name = "move"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool, for an entity with an owner."""
        if entity.parent is None:
            return
        owner = entities()[entity.parent]
        properties: dict[str, Any] = {
            entity.id_name: key_schema(entity, terse),
            owner.id_name: key_schema(owner, terse),
        }
        required = list(properties)
        if not terse and number(entity.name, "move") % 2:
            forms = [{"type": "string", "format": "date"}, {"const": "now"}]
            properties["when"] = {"anyOf": forms, "description": "A day, or `now`."}
        name = f"{self.verb(terse, entity.name, 'move')}_{entity.name}"
        yield ToolDraft(name, self.describe(entity, terse, "move told"), properties, required)

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """Both ids."""
        entity = entities()[tool.entity]
        owner = entities()[entity.parent or ""]
        key, target = given[entity.id_name], given[owner.id_name]
        made = change(tables, entity, key, **{owner.id_name: target})
        row_of(tables, owner.name, target)
        return made, {entity.id_name: key, owner.id_name: target}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Move it to another owner."""
        del tool
        entity = at.entity
        if entity.parent is None:
            return None
        owner = entities()[entity.parent]
        now = view.rows(entity)[at.key][owner.id_name]
        others = [key for key in view.rows(owner) if key != now]
        if not others:
            return None
        target = view.draw.choice(others)
        slot = f"target.{owner.name}"
        stated = Stated(slot, target, target, f"{owner.words} id")
        given: dict[str, Source] = {entity.id_name: at.source, owner.id_name: stated}
        words = f"move {at.words} to {owner.words} <{slot}>"
        return PlannedCall(given, words, f"moves {at.words}", vague={slot: "another one"})


class Note(Updating):
    """Attaches a note to a row."""

    name = "note"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool."""
        text = {"type": "string"} if terse else {"type": "string", "minLength": 3, "maxLength": 400}
        properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse), "note": text}
        required = list(properties)
        form = 2 if terse else number(entity.name, "note form") % 3
        if form == 0:
            properties["author"] = {"type": "object", "properties": {"name": {"type": "string"}}}
        if form == 1:
            properties["pinned"] = {"type": ["boolean", "null"], "default": None}
        name = f"{self.verb(terse, entity.name, 'note')}_{entity.name}"
        yield ToolDraft(name, self.describe(entity, terse, "note told"), properties, required)

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The number of notes."""
        entity = entities()[tool.entity]
        key = given[entity.id_name]
        notes = [*row_of(tables, entity.name, key).get("notes", []), given["note"]]
        return change(tables, entity, key, notes=notes), {entity.id_name: key, "notes": len(notes)}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Add a note."""
        del tool
        text = view.draw.choice(word_list("note"))
        stated = Stated("note", text, text, "text of the note")
        given: dict[str, Source] = {at.entity.id_name: at.source, "note": stated}
        words, vague = f"add the note <note> to {at.words}", {"note": "that I have in mind"}
        return PlannedCall(given, words, f"notes it on {at.words}", vague=vague)


OPERATIONS: Final = (Adjust, Assign, Bulk, Edit, Label, Move, Note)
