"""Operations that create, change and delete rows: values, tags, notes, owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from reference.agentic.chance import drawn, number
from reference.agentic.domain import (
    Entity,
    Field,
    Refused,
    Tables,
    children_of,
    draw_value,
    entities,
    kind_of,
    new_id,
    plain,
    put,
    row_of,
    say_value,
    schema_of,
    without,
)
from reference.agentic.domain import words as word_list
from reference.agentic.operations.base import (
    Arguments,
    CallEffect,
    Effect,
    FieldOperation,
    Implied,
    Operation,
    PlannedCall,
    Source,
    Stated,
    Subject,
    TaskView,
    ToldFact,
    ToolDraft,
    ToolSpec,
    a,
    change,
    ids,
    key_schema,
)


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
        fields = {field.name: schema_of(field, terse) for field in (*needed, *optional)}
        names, owner = [field.name for field in needed], ids(terse, entity.owner)
        words = {"f": ", ".join(field.words for field in needed).capitalize()}
        binding = {"needed": names}
        yield ToolDraft({**fields, **owner}, [*names, *owner], binding=binding, words=words)

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The new id."""
        entity = entities()[tool.entity]
        row = {field.name: given.get(field.name) for field in entity.fields}
        label, owner = entity.label.name, entity.owner
        if any(other[label] == row[label] for other in tables.get(entity.name, {}).values()):
            raise Refused(f"there is already one with the {entity.label.words} {row[label]!r}")
        if owner:
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
        properties = {**ids(terse, entity), **self.extra(terse, entity.name, "remove form")}
        yield ToolDraft(properties, [name for name in properties if name != "keep_backup"])

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
        properties = tool.parameters["properties"]
        if "confirm" in properties:
            given["confirm"] = Implied(True)
        if "cause" in properties:
            cause = view.draw.choice(properties["cause"]["enum"])
            given["cause"] = Stated("cause", cause, cause, "cause")
            words, vague = f"{words}, cause: <cause>", {"cause": "you may ask me"}
        return PlannedCall(given, words, f"deletes {at.words}", vague=vague)


class Adjust(FieldOperation):
    """Raises or lowers a number."""

    name = "adjust"
    text = "adjust told"
    effect = "update"

    def fits(self, entity: Entity, field: Field, terse: bool) -> bool:
        """A number that may change."""
        del entity, terse
        return not field.fixed and kind_of(field).numeric

    def arguments(self, entity: Entity, field: Field, terse: bool) -> Any:
        """A step with a sign, or an amount and its direction."""
        amount: dict[str, Any] = {"type": "integer" if field.kind == "int" else "number"}
        signed = not terse and number(entity.name, field.name, "signed") % 2 == 0
        properties = ids(terse, entity)
        if signed:
            about = f"What is added to {field.words}; negative takes away."
            properties["delta"] = {**amount, "description": about}
        else:
            properties["amount"] = amount if terse else {**amount, "exclusiveMinimum": 0}
            properties["direction"] = {"type": "string", "enum": ["up", "down"]}
        return properties, list(properties), {"signed": signed}

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
        made = change(tables, entity, key, **{field.name: value})
        return made, {entity.id_name: key, field.name: value}

    def plan(self, tool: ToolSpec, view: TaskView, at: Subject, field: Field) -> PlannedCall | None:
        """Raise or lower it by an amount."""
        low, high = float(field.given[0]), float(field.given[1])
        step = view.draw.uniform(0.05, 0.3) * (high - low)
        value = max(1, round(step)) if field.kind == "int" else round(max(0.01, step), 2)
        up = view.draw.random() < 0.6
        slot = f"step.{field.name}"
        given: dict[str, Source] = {at.entity.id_name: at.source}
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


class Assign(FieldOperation):
    """Sets a value."""

    name = "assign"
    text = "set told"
    effect = "update"

    def fits(self, entity: Entity, field: Field, terse: bool) -> bool:
        """A field that may change."""
        del entity
        return not field.fixed and (not terse or plain(field, terse))

    def arguments(self, entity: Entity, field: Field, terse: bool) -> Any:
        """The value, and an argument that tasks seldom need."""
        properties = {**ids(terse, entity), field.name: schema_of(field, terse)}
        extra = self.extra(terse, entity.name, field.name, "form", f=field.words)
        return {**properties, **extra}, list(properties), {}

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The old value and the new value."""
        entity = entities()[tool.entity]
        key, name = given[entity.id_name], tool.binding["field"]
        old = row_of(tables, entity.name, key)[name]
        made = change(tables, entity, key, **{name: given[name]})
        return made, {entity.id_name: key, "old": old, name: given[name]}

    def plan(self, tool: ToolSpec, view: TaskView, at: Subject, field: Field) -> PlannedCall | None:
        """Set it to another value."""
        del tool
        now = view.rows(at.entity)[at.key][field.name]
        values = (draw_value(field, view.draw) for _ in range(9))
        value = next((drawn_value for drawn_value in values if drawn_value != now), None)
        if value is None:
            return None
        slot = f"new.{field.name}"
        stated = Stated(slot, value, say_value(field, value), f"new {field.words}")
        words = f"{view.draw.choice(('set', 'change'))} the {field.words} of {at.words} to <{slot}>"
        given = {at.entity.id_name: at.source, field.name: stated}
        vague = {slot: "something else"}
        return PlannedCall(given, words, f"sets the {field.words}", vague=vague)


class Bulk(FieldOperation):
    """Sets one value of several rows."""

    name = text = "bulk"
    effect = "update"
    verb_by_field = False

    def fits(self, entity: Entity, field: Field, terse: bool) -> bool:
        """A choice that may change."""
        del entity
        kind = kind_of(field)
        return not terse and not field.fixed and kind.choice and not kind.nested

    def arguments(self, entity: Entity, field: Field, terse: bool) -> Any:
        """The ids and the value."""
        keys = {"type": "array", "items": key_schema(entity, terse), "minItems": 1, "maxItems": 10}
        return {"ids": keys, field.name: schema_of(field, terse)}, ["ids", field.name], {}

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The number of rows."""
        entity, name = entities()[tool.entity], tool.binding["field"]
        for key in given["ids"]:
            tables = change(tables, entity, key, **{name: given[name]})
        return tables, {"updated": len(given["ids"])}

    def plan(self, tool: ToolSpec, view: TaskView, at: Subject, field: Field) -> PlannedCall | None:
        """Set it for the subject and another row that the user names."""
        del tool
        entity = at.entity
        if not isinstance(at.source, Stated):
            return None
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


class Edit(Operation):
    """Changes several values of a row."""

    name = "edit"
    effect = "update"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """Tools for two and for up to four fields that may change."""
        free = [field for field in entity.fields[1:] if not field.fixed]
        if terse or len(free) < 2:
            return
        for size in {2, min(4, len(free))}:
            draw = drawn("edit", entity.name, size)
            yield self._draft(entity, sorted(draw.sample(free, size), key=free.index), size)

    def _draft(self, entity: Entity, chosen: list[Field], size: int) -> ToolDraft:
        values = {field.name: schema_of(field) for field in chosen}
        nested = number(entity.name, size, "nested") % 2 == 0
        changes = {"type": "object", "properties": values, "additionalProperties": False}
        key = ids(False, entity)
        suffix = f"_{'_'.join(list(values)[:2])}"
        binding = {"fields": list(values), "nested": nested}
        words = {"f": ", ".join(field.words for field in chosen)}
        properties = {**key, **({"changes": changes} if nested else values)}
        required = list(properties if nested else key)
        return ToolDraft(properties, required, suffix, binding, words, (size,), (size, "edit told"))

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
        if tool.binding["nested"]:
            return None
        given: dict[str, Source] = {at.entity.id_name: at.source}
        parts: list[str] = []
        now = view.rows(at.entity)[at.key]
        for name in tool.binding["fields"][:2]:
            field = at.entity.field(name)
            value = draw_value(field, view.draw)
            if value == now[name]:
                return None
            text = say_value(field, value)
            given[name] = Stated(f"new.{name}", value, text, f"new {field.words}")
            parts.append(f"the {field.words} to <new.{name}>")
        words = f"change two things of {at.words}: {' and '.join(parts)}"
        vague = {f"new.{tool.binding['fields'][0]}": "another value"}
        return PlannedCall(given, words, f"edits {at.words}", vague=vague)


class Label(FieldOperation):
    """Adds a tag to a row, or takes it away."""

    name = text = "label"
    effect = "update"
    verb_by_field = False

    def fits(self, entity: Entity, field: Field, terse: bool) -> bool:
        """Tags."""
        del entity, terse
        return field.kind == "tags"

    def arguments(self, entity: Entity, field: Field, terse: bool) -> Any:
        """The tag, and what is done with it."""
        key, word = ids(terse, entity), {"type": "string", "enum": list(field.given)}
        action = {"type": "string", "enum": ["add", "take"], "default": "add"}
        return {**key, "word": word, "action": action}, [*key, "word"], {}

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """All tags of the row."""
        entity = entities()[tool.entity]
        key, name = given[entity.id_name], tool.binding["field"]
        tags = set(row_of(tables, entity.name, key)[name] or ())
        tags = tags - {given["word"]} if given.get("action") == "take" else tags | {given["word"]}
        made = change(tables, entity, key, **{name: sorted(tags)})
        return made, {entity.id_name: key, name: sorted(tags)}

    def plan(self, tool: ToolSpec, view: TaskView, at: Subject, field: Field) -> PlannedCall | None:
        """Add a tag, or take it if the row has it."""
        del tool
        word = view.draw.choice(field.given)
        has = word in view.rows(at.entity)[at.key][field.name]
        given: dict[str, Source] = {
            at.entity.id_name: at.source,
            "word": Stated("word", word, word, f"which of the {field.words}"),
            "action": Implied("take" if has else "add"),
        }
        act = "take <word> from" if has else "add <word> to"
        words = f"{act} the {field.words} of {at.words}"
        return PlannedCall(given, words, f"marks {at.words}", vague={"word": "one"})


class Move(Operation):
    """Gives a row to another owner."""

    name = "move"
    effect = "update"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool, for an entity with an owner."""
        if entity.owner:
            keys = ids(terse, entity, entity.owner)
            yield ToolDraft({**keys, **self.extra(terse, entity.name, "move")}, list(keys))

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
        entity, owner = at.entity, at.entity.owner
        if owner is None:
            return None
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


class Note(Operation):
    """Attaches a note to a row."""

    name = "note"
    effect = "update"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool."""
        text = {"type": "string"} if terse else {"type": "string", "minLength": 3, "maxLength": 400}
        needed = {**ids(terse, entity), "note": text}
        yield ToolDraft({**needed, **self.extra(terse, entity.name, "note form")}, list(needed))

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


OPERATIONS: Final = (Create, Remove, Adjust, Assign, Bulk, Edit, Label, Move, Note)
