"""Operations that read rows: by id, by label, two compared, counts and statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from reference.agentic.chance import number
from reference.agentic.domain import Entity, entities
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
    key_schema,
)
from reference.agentic.tables import Refused, Tables, row_of
from reference.agentic.tool_spec import Effect, ToolSpec
from reference.agentic.values import kind_of, plain, say_value, schema_of

_STATISTICS: Final = {"sum": "total", "mean": "mean", "min": "least", "max": "greatest"}
"""Functions of `total`, and their words."""


class Reading(Operation):
    """An operation that changes nothing."""

    effect: ClassVar[Effect] = "read"


class Get(Reading):
    """Reads one row by its id."""

    name = "get"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool."""
        described = self.describe(
            entity, terse, "get told", f=entity.fields[-1].words, g=entity.fields[1].words
        )
        properties: dict[str, Any] = {entity.id_name: key_schema(entity, terse)}
        form = 3 if terse else number(entity.name, "form") % 4
        if form == 0:
            properties["fields"] = {
                "type": "array",
                "items": {"type": "string", "enum": [field.name for field in entity.fields]},
                "description": "Which details to return; all of them where this is left out.",
            }
        if form == 1:
            properties["detail"] = {"type": "string", "enum": ["short", "full"], "default": "full"}
        if form == 2:
            properties["language"] = {"type": "string", "pattern": "^[a-z]{2}$", "default": "en"}
        name = f"{self.verb(terse, entity.name, 'get')}_{entity.name}"
        yield ToolDraft(name, described, properties, [entity.id_name])

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The row, or the fields that are asked for."""
        entity = entities()[tool.entity]
        key = given[entity.id_name]
        row = row_of(tables, entity.name, key)
        wanted = given.get("fields") or list(row)
        if given.get("detail") == "short":
            wanted = [entity.label.name, *(name for name in row if name.endswith("_id"))]
        kept = {name: row[name] for name in row if name in wanted}
        return tables, {entity.id_name: key, **kept}

    def hop(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Up to the owner."""
        del view
        entity = at.entity
        if tool.entity != entity.name or entity.parent is None:
            return None
        owner = entities()[entity.parent]
        words, purpose = f"the {owner.words} of {at.words}", f"reads {at.words}"
        given = {entity.id_name: at.source}
        return PlannedCall(given, words, purpose, (owner.id_name,), owner.name)

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Tell one value; the label is no news."""
        del tool
        entity = at.entity
        field = view.draw.choice([one for one in entity.fields[1:] if plain(one, view.terse)])
        words = view.draw.choice(
            ("tell me the {f} of {t}", "find out the {f} of {t}", "look up the {f} of {t}")
        )
        facts = (ToldFact(field.words, (field.name,), field.kind, kind_of(field).choice),)
        words = words.format(f=field.words, t=at.words)
        return PlannedCall({entity.id_name: at.source}, words, f"reads {at.words}", facts=facts)


class Lookup(Reading):
    """Finds the id of a row by its label."""

    name = "lookup"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool."""
        label = entity.label
        properties = {label.name: schema_of(label, terse)}
        form = 2 if terse else number(entity.name, "lookup form") % 3
        if form == 0:
            about = "Capitals do not matter."
            properties["ignore_case"] = {"type": "boolean", "description": about}
        if form == 1:
            properties["timeout_s"] = {"type": "number", "exclusiveMinimum": 0, "maximum": 60}
        name = f"{self.verb(terse, entity.name, 'lookup')}_{entity.name}_by_{label.name}"
        described = self.describe(entity, terse, "lookup told")
        yield ToolDraft(name, described, properties, [label.name])

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The id."""
        entity = entities()[tool.entity]
        label = entity.label.name

        def compared(text: Any) -> Any:
            return text.casefold() if given.get("ignore_case") and isinstance(text, str) else text

        for key, row in tables.get(entity.name, {}).items():
            if compared(row[label]) == compared(given[label]):
                return tables, {entity.id_name: key}
        raise Refused(f"no {entity.words} has the {entity.label.words} {given[label]!r}")

    def start(self, tool: ToolSpec, view: TaskView) -> PlannedCall | None:
        """From the label."""
        entity = entities()[tool.entity]
        rows, label = view.rows(entity), entity.label
        if not rows:
            return None
        value = rows[view.draw.choice(list(rows))][label.name]
        words = f"{entity.words} {value}"
        if not view.terse:
            words = view.draw.choice(
                (f"the {words}", f"the {entity.words} whose {label.words} is {value}")
            )
        stated = Stated(f"{entity.name}.{label.name}", value, str(value), f"{label.words}")
        purpose, finds = f"finds the {entity.words}", (entity.id_name,)
        return PlannedCall({label.name: stated}, words, purpose, finds, entity.name)


class Compare(Reading):
    """Compares a number of two rows."""

    name = "compare"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool, for an entity with numbers."""
        fields = [field for field in entity.fields[1:] if kind_of(field).numeric]
        if not fields or terse:
            return
        words = " or ".join(field.words for field in fields)
        paired = number(entity.name, "paired") % 2 == 0
        key = key_schema(entity, terse)
        names = [field.name for field in fields]
        properties: dict[str, Any] = {"by": {"type": "string", "enum": names}}
        if paired:
            pair = {"type": "array", "items": key, "minItems": 2, "maxItems": 2}
            properties["pair"] = {**pair, "description": "The two ids."}
        else:
            properties |= {"first": key, "second": key}
        name = f"{self.verb(terse, entity.name)}_{entity.name}"
        described = self.describe(entity, terse, "compare", f=words)
        yield ToolDraft(name, described, properties, list(properties), {"paired": paired})

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """Both values, the id of the greater, and the difference."""
        keys = given["pair"] if tool.binding["paired"] else [given["first"], given["second"]]
        first, second = (row_of(tables, tool.entity, key)[given["by"]] for key in keys)
        if first is None or second is None:
            return tables, {"difference": None}
        return tables, {
            "values": [first, second],
            "greater": keys[0] if first >= second else keys[1],
            "difference": round(abs(first - second), 2),
        }

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Tell the difference to another row."""
        entity = at.entity
        if tool.binding["paired"]:
            return None
        other = view.draw.choice([key for key in view.rows(entity) if key != at.key])
        name = view.draw.choice(tool.parameters["properties"]["by"]["enum"])
        words = entity.field(name).words
        given: dict[str, Source] = {
            "by": Implied(name),
            "first": at.source,
            "second": Stated("other", other, other, f"other {entity.words}"),
        }
        request = (
            f"tell me by how much the {words} of {at.words} and of {entity.words} <other> differ"
        )
        facts = (ToldFact(f"difference of {words}", ("difference",), "float"),)
        vague = {"other": "one that I shall name"}
        return PlannedCall(given, request, "compares both", facts=facts, vague=vague)


class Count(Reading):
    """Counts rows of an owner by a value, or in groups."""

    name = "count"
    of_owner = True

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool per choice, for an entity with an owner."""
        if entity.parent is None:
            return
        owner = entities()[entity.parent]
        for field in entity.fields[1:]:
            if not kind_of(field).choice or not plain(field, terse):
                continue
            properties: dict[str, Any] = {
                owner.id_name: key_schema(owner, terse),
                field.name: schema_of(field, terse),
            }
            verb = self.verb(terse, entity.name, field.name)
            described = self.describe(entity, terse, field.name, "count", f=field.words)
            name, binding = f"{verb}_{entity.name}_by_{field.name}", {"field": field.name}
            yield ToolDraft(name, described, properties, [owner.id_name], binding)

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The count, and counts by value unless one is given."""
        entity = entities()[tool.entity]
        owner, name = f"{entity.parent}_id", tool.binding["field"]
        rows = [row for row in tables.get(entity.name, {}).values() if row[owner] == given[owner]]
        if name in given:
            return tables, {"count": sum(row[name] == given[name] for row in rows)}
        field = entity.field(name)
        groups = Counter(say_value(field, row[name]) for row in rows)
        return tables, {"count": len(rows), "groups": dict(sorted(groups.items()))}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Count the rows of the subject with a value."""
        entity = entities()[tool.entity]
        field = entity.field(tool.binding["field"])
        own = view.children(entity, at)
        if not own:
            return None
        value = view.draw.choice(own)[field.name]
        slot = f"counted.{field.name}"
        given: dict[str, Source] = {
            at.entity.id_name: at.source,
            field.name: Stated(slot, value, say_value(field, value), field.words),
        }
        words = f"count the {entity.words} records of {at.words} whose {field.words} is <{slot}>"
        facts = (ToldFact("count", ("count",), "int"),)
        return PlannedCall(given, words, "counts them", facts=facts)


class Total(Reading):
    """A sum, mean, minimum or maximum of a number over rows."""

    name = "total"
    of_owner = True

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool per number, for an entity with an owner."""
        if entity.parent is None:
            return
        owner = entities()[entity.parent]
        for field in entity.fields[1:]:
            if not kind_of(field).numeric:
                continue
            properties: dict[str, Any] = {
                owner.id_name: key_schema(owner, terse),
                "function": {"type": "string", "enum": list(_STATISTICS)},
            }
            if not terse and number(entity.name, field.name, "round") % 2:
                properties["decimals"] = {"type": "integer", "minimum": 2, "maximum": 6}
            verb = self.verb(terse, entity.name, field.name)
            described = self.describe(entity, terse, field.name, "total told", f=field.words)
            name, binding = f"{verb}_{entity.name}_{field.name}", {"field": field.name}
            yield ToolDraft(name, described, properties, ["function"], binding)

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The number of rows and the statistic."""
        entity = entities()[tool.entity]
        owner, name = f"{entity.parent}_id", tool.binding["field"]
        values = [
            row[name]
            for row in tables.get(entity.name, {}).values()
            if given.get(owner, row[owner]) == row[owner] and row[name] is not None
        ]
        if not values:
            return tables, {"count": 0, "value": None}
        how = given["function"]
        value = sum(values)
        if how == "mean":
            value = value / len(values)
        if how in ("min", "max"):
            value = min(values) if how == "min" else max(values)
        return tables, {"count": len(values), "value": round(value, 2)}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Tell a statistic over the rows of the subject."""
        entity = entities()[tool.entity]
        field = entity.field(tool.binding["field"])
        how = view.draw.choice(list(_STATISTICS))
        label = f"{_STATISTICS[how]} {field.words}"
        given: dict[str, Source] = {at.entity.id_name: at.source, "function": Implied(how)}
        words = f"tell me the {label} over the {entity.words} records of {at.words}"
        facts = (ToldFact(label, ("value",), field.kind),)
        return PlannedCall(given, words, f"computes the {field.words}", facts=facts)


OPERATIONS: Final = (Get, Lookup, Compare, Count, Total)
