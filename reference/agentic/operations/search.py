"""The operation that finds rows by their values: filters, ranges, sorting, a limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from reference.agentic.chance import drawn
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
    key_schema,
    plural,
)
from reference.agentic.tables import Row, Tables
from reference.agentic.tool_spec import Effect, ToolSpec
from reference.agentic.values import kind_of, plain, say_value, schema_of


class Search(Operation):
    """Finds rows by their values."""

    name = "search"
    effect: ClassVar[Effect] = "read"
    of_owner = True

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """Tools with one, two and three filters; a terse tool has one."""
        fit = [field for field in entity.fields[1:] if plain(field, terse)]
        draw = drawn("search", entity.name)
        for size in (1,) if terse else (1, 2, 3):
            chosen = sorted(draw.sample(fit, min(size, len(fit))), key=fit.index)
            if terse:
                chosen = [field for field in fit if field.kind == "enum"][:1] or chosen
            yield self._draft(entity, chosen, terse, size)

    def _draft(self, entity: Entity, chosen: list[Field], terse: bool, size: int) -> ToolDraft:
        forms = {field.name: _form(field, size, terse) for field in chosen}
        properties: dict[str, Any] = {}
        for field in chosen:
            properties |= _filter(field, forms[field.name], terse)
        owner = entities()[entity.parent] if entity.parent else None
        if owner is not None and (terse or size > 1):
            properties[owner.id_name] = key_schema(owner, terse)
        sorts = [one.name for one in entity.fields if kind_of(one).numeric or one.kind == "date"]
        if sorts and not terse and size != 2:
            properties["sort_by"] = {"type": "string", "enum": sorts}
            properties["descending"] = {"type": "boolean", "default": False}
        if not terse:
            properties["limit"] = {"type": "integer", "minimum": 1, "maximum": 50 - size}
        words = " and ".join(field.words for field in chosen)
        described = self.describe(entity, terse, "search", size, f=words)
        verb, names = self.verb(terse, entity.name, size), "_".join(forms)
        name = f"{verb}_{plural(entity.name)}_by_{names}"
        return ToolDraft(name, described, properties, [], {"filters": forms})

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The rows that match, with their ids and the values that were matched."""
        entity = entities()[tool.entity]
        rows = tables.get(entity.name, {}).items()
        matches = [(key, row) for key, row in rows if _holds(row, entity, tool, given)]
        sort = given.get("sort_by")
        if sort:
            matches = [match for match in matches if match[1][sort] is not None]
            matches.sort(key=lambda match: match[1][sort], reverse=bool(given.get("descending")))
        matches = matches[: int(given.get("limit", 50))]
        shown = [entity.label.name, *tool.binding["filters"], *([sort] if sort else [])]
        listed = [
            {entity.id_name: key, **{name: row[name] for name in dict.fromkeys(shown)}}
            for key, row in matches
        ]
        return tables, {"total": len(listed), "matches": listed}

    def start(self, tool: ToolSpec, view: TaskView) -> PlannedCall | None:
        """The only row with a value."""
        entity = entities()[tool.entity]
        rows = view.rows(entity)
        forms: Mapping[str, str] = tool.binding["filters"]
        if not rows:
            return None
        name = view.draw.choice(list(forms))
        field, form = entity.field(name), forms[name]
        value = view.draw.choice(list(rows.values()))[name]
        alike = [row for row in rows.values() if row[name] == value]
        if form not in ("is", "any") or len(alike) != 1:
            return _extreme(tool, view, entity)
        text = say_value(field, value)
        given = [value] if form == "any" else value
        stated = Stated(f"{entity.name}.{name}", given, text, field.words)
        words = f"the only {entity.words} whose {field.words} is {text}"
        return _finding(entity, {name: stated}, words)

    def hop(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Down to a row that belongs to the subject."""
        entity = entities()[tool.entity]
        if not _by_owner(tool, entity, at):
            return None
        own = view.children(entity, at)
        forms: Mapping[str, str] = tool.binding["filters"]
        for name, form in forms.items():
            values = [row[name] for row in own if form == "is"]
            single = [value for value in values if values.count(value) == 1]
            if single:
                value, field = view.draw.choice(single), entity.field(name)
                text = say_value(field, value)
                stated = Stated(f"{entity.name}.{name}", value, text, field.words)
                words = f"the {entity.words} of {at.words} whose {field.words} is {text}"
                return _finding(entity, {at.entity.id_name: at.source, name: stated}, words)
        return None

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Count the rows that belong to the subject."""
        del view
        entity = entities()[tool.entity]
        if not _by_owner(tool, entity, at):
            return None
        names = plural(entity.words)
        words = f"tell me how many {names} {at.words} has"
        facts = (ToldFact(f"number of {names}", ("total",), "int"),)
        given = {at.entity.id_name: at.source}
        return PlannedCall(given, words, f"lists those of {at.words}", facts=facts)


def _by_owner(tool: ToolSpec, entity: Entity, at: Subject) -> bool:
    """Whether the tool finds rows of the subject."""
    return entity.parent == at.entity.name and at.entity.id_name in tool.parameters["properties"]


def _finding(entity: Entity, given: Mapping[str, Source], words: str) -> PlannedCall:
    finds = ("matches", 0, entity.id_name)
    return PlannedCall(given, words, f"finds the {entity.words}", finds, entity.name)


def _extreme(tool: ToolSpec, view: TaskView, entity: Entity) -> PlannedCall | None:
    """The row with the highest or lowest value."""
    sorts = tool.parameters["properties"].get("sort_by", {}).get("enum", [])
    if not sorts:
        return None
    name, most = view.draw.choice(sorts), view.draw.random() < 0.5
    values = [row[name] for row in view.rows(entity).values()]
    if None in values or values.count(max(values) if most else min(values)) != 1:
        return None
    kind = entity.field(name).kind
    word = ("latest" if most else "earliest") if kind == "date" else "highest" if most else "lowest"
    given: dict[str, Source] = {"sort_by": Implied(name)}
    if most:
        given["descending"] = Implied(True)
    return _finding(entity, given, f"the {entity.words} with the {word} {entity.field(name).words}")


def _form(field: Field, size: int, terse: bool) -> str:
    """`is`, `range` (an object), `bounds` (two arguments) or `any` (a list of words)."""
    if terse or field.kind == "bool":
        return "is"
    if kind_of(field).numeric:
        return "range" if size % 2 else "bounds"
    if field.kind == "enum":
        return "any" if size == 3 else "is"
    return "bounds" if field.kind in ("date", "time") else "is"


def _filter(field: Field, form: str, terse: bool) -> dict[str, Any]:
    """The arguments of a filter."""
    whole = schema_of(field, terse)
    short = {key: whole[key] for key in ("type", "format", "enum") if key in whole}
    if form == "range":
        ends = {"min": {"type": "number"}, "max": {"type": "number"}}
        about = f"Least and greatest {field.words}."
        nested = {"type": "object", "properties": ends, "description": about}
        return {f"{field.name}_range": {**nested, "additionalProperties": False}}
    if form == "bounds":
        low, high = _bound_names(field)
        return {
            low: {**short, "description": f"{field.words} from here on"},
            high: {**short, "description": f"{field.words} up to here"},
        }
    if form == "any":
        return {field.name: {"type": "array", "items": short, "minItems": 1}}
    return {field.name: whole}


def _bound_names(field: Field) -> tuple[str, str]:
    if field.kind in ("date", "time"):
        return f"{field.name}_after", f"{field.name}_before"
    return f"min_{field.name}", f"max_{field.name}"


def _holds(row: Row, entity: Entity, tool: ToolSpec, given: Arguments) -> bool:
    owner = f"{entity.parent}_id"
    if owner in given and row.get(owner) != given[owner]:
        return False
    for name, form in tool.binding["filters"].items():
        value = row[name]
        low, high = _limits(entity.field(name), form, given)
        if (low is not None or high is not None) and value is None:
            return False
        if (low is not None and value < low) or (high is not None and value > high):
            return False
        if form == "is" and name in given and value != given[name]:
            return False
        if form == "any" and name in given and value not in given[name]:
            return False
    return True


def _limits(field: Field, form: str, given: Arguments) -> tuple[Any, Any]:
    if form == "range":
        span = given.get(f"{field.name}_range", {})
        return span.get("min"), span.get("max")
    if form == "bounds":
        low, high = _bound_names(field)
        return given.get(low), given.get(high)
    return None, None


OPERATIONS: Final = (Search,)
