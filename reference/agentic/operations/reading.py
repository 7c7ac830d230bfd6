"""Operations that read rows: by id, by label, by values, two compared, counts and statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reference.agentic.chance import drawn
from reference.agentic.domain import (
    Entity,
    Field,
    Refused,
    Row,
    Tables,
    entities,
    kind_of,
    plain,
    row_of,
    say_value,
    schema_of,
)
from reference.agentic.operations.base import (
    Arguments,
    CallEffect,
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
    ids,
    key_schema,
    plural,
)

_STATISTICS: Final = {"sum": "total", "mean": "mean", "min": "least", "max": "greatest"}
"""Functions of `total`, and their words."""


class Get(Operation):
    """Reads one row by its id."""

    name = "get"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool."""
        extra = self.extra(terse, entity.name, "form")
        if "fields" in extra:
            names = {"type": "string", "enum": [field.name for field in entity.fields]}
            extra = {"fields": {**extra["fields"], "items": names}}
        words = {"f": entity.fields[-1].words, "g": entity.fields[1].words}
        yield ToolDraft({**ids(terse, entity), **extra}, [entity.id_name], words=words)

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
        owner = at.entity.owner
        if tool.entity != at.entity.name or owner is None:
            return None
        words, given = f"the {owner.words} of {at.words}", {at.entity.id_name: at.source}
        return PlannedCall(given, words, f"reads {at.words}", (owner.id_name,), owner.name)

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Tell one value; the label is no news."""
        del tool
        entity = at.entity
        field = view.draw.choice([each for each in entity.fields[1:] if plain(each, view.terse)])
        verb = view.draw.choice(("tell me", "find out", "look up"))
        facts = (ToldFact(field.words, (field.name,), field.kind, kind_of(field).choice),)
        words = f"{verb} the {field.words} of {at.words}"
        return PlannedCall({entity.id_name: at.source}, words, f"reads {at.words}", facts=facts)


class Lookup(Operation):
    """Finds the id of a row by its label."""

    name = "lookup"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool."""
        label, extra = entity.label, self.extra(terse, entity.name, "lookup form")
        properties = {label.name: schema_of(label, terse), **extra}
        yield ToolDraft(properties, [label.name], f"_by_{label.name}")

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
            longer = f"the {entity.words} whose {label.words} is {value}"
            words = view.draw.choice((f"the {words}", longer))
        stated = Stated(f"{entity.name}.{label.name}", value, str(value), f"{label.words}")
        purpose, finds = f"finds the {entity.words}", (entity.id_name,)
        return PlannedCall({label.name: stated}, words, purpose, finds, entity.name)


class Compare(Operation):
    """Compares a number of two rows."""

    name = "compare"

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool, for an entity with numbers."""
        fields = [field for field in entity.fields[1:] if kind_of(field).numeric]
        if not fields or terse:
            return
        key, names = key_schema(entity, terse), [field.name for field in fields]
        pair = {"type": "array", "items": key, "minItems": 2, "maxItems": 2}
        extra = self.extra(terse, entity.name, "paired")
        paired = "pair" in extra
        properties = {
            "by": {"type": "string", "enum": names},
            **({"pair": {**pair, **extra["pair"]}} if paired else {"first": key, "second": key}),
        }
        words = {"f": " or ".join(field.words for field in fields)}
        binding = {"paired": paired}
        yield ToolDraft(properties, list(properties), "", binding, words, text_key=("compare",))

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """Both values, the id of the greater, and the difference."""
        keys = given["pair"] if tool.binding["paired"] else [given["first"], given["second"]]
        first, second = (row_of(tables, tool.entity, key)[given["by"]] for key in keys)
        if first is None or second is None:
            return tables, {"difference": None}
        greater, difference = keys[first < second], round(abs(first - second), 2)
        return tables, {"values": [first, second], "greater": greater, "difference": difference}

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Tell the difference to another row."""
        entity = at.entity
        if tool.binding["paired"]:
            return None
        other = view.draw.choice([key for key in view.rows(entity) if key != at.key])
        name = view.draw.choice(tool.parameters["properties"]["by"]["enum"])
        words = entity.field(name).words
        stated = Stated("other", other, other, f"other {entity.words}")
        given = {"by": Implied(name), "first": at.source, "second": stated}
        both = f"{at.words} and of {entity.words} <other>"
        request = f"tell me by how much the {words} of {both} differ"
        facts = (ToldFact(f"difference of {words}", ("difference",), "float"),)
        vague = {"other": "one that I shall name"}
        return PlannedCall(given, request, "compares both", facts=facts, vague=vague)


class Count(FieldOperation):
    """Counts rows of an owner by a value, or in groups."""

    name = text = "count"
    of_owner = True
    joint = "_by_"

    def fits(self, entity: Entity, field: Field, terse: bool) -> bool:
        """A choice, of an entity with an owner."""
        return entity.parent is not None and kind_of(field).choice and plain(field, terse)

    def arguments(self, entity: Entity, field: Field, terse: bool) -> Any:
        """The owner, and a value."""
        owner = ids(terse, entity.owner)
        return {**owner, field.name: schema_of(field, terse)}, list(owner), {}

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

    def plan(self, tool: ToolSpec, view: TaskView, at: Subject, field: Field) -> PlannedCall | None:
        """Count the rows of the subject with a value."""
        entity = entities()[tool.entity]
        own = view.children(entity, at)
        if not own:
            return None
        value = view.draw.choice(own)[field.name]
        slot = f"counted.{field.name}"
        stated = Stated(slot, value, say_value(field, value), field.words)
        given = {at.entity.id_name: at.source, field.name: stated}
        words = f"count the {entity.words} records of {at.words} whose {field.words} is <{slot}>"
        facts = (ToldFact("count", ("count",), "int"),)
        return PlannedCall(given, words, "counts them", facts=facts)


class Total(FieldOperation):
    """A sum, mean, minimum or maximum of a number over rows."""

    name = "total"
    text = "total told"
    of_owner = True

    def fits(self, entity: Entity, field: Field, terse: bool) -> bool:
        """A number, of an entity with an owner."""
        del terse
        return entity.parent is not None and kind_of(field).numeric

    def arguments(self, entity: Entity, field: Field, terse: bool) -> Any:
        """The owner, and the function."""
        function = {"function": {"type": "string", "enum": list(_STATISTICS)}}
        extra = self.extra(terse, entity.name, field.name, "round")
        return {**ids(terse, entity.owner), **function, **extra}, ["function"], {}

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
        total = sum(values)
        results = {"sum": total, "mean": total / len(values), "min": min(values)}
        value = results.get(given["function"], max(values))
        return tables, {"count": len(values), "value": round(value, 2)}

    def plan(self, tool: ToolSpec, view: TaskView, at: Subject, field: Field) -> PlannedCall | None:
        """Tell a statistic over the rows of the subject."""
        how = view.draw.choice(list(_STATISTICS))
        label = f"{_STATISTICS[how]} {field.words}"
        given: dict[str, Source] = {at.entity.id_name: at.source, "function": Implied(how)}
        rows = f"the {entities()[tool.entity].words} records of {at.words}"
        facts = (ToldFact(label, ("value",), field.kind),)
        purpose = f"computes the {field.words}"
        return PlannedCall(given, f"tell me the {label} over {rows}", purpose, facts=facts)


class Search(Operation):
    """Finds rows by their values: filters, ranges, sorting, a limit."""

    name = "search"
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
        if terse or size > 1:
            properties |= ids(terse, entity.owner)
        sorts = [each.name for each in entity.fields if _sortable(each)]
        if sorts and not terse and size != 2:
            properties["sort_by"] = {"type": "string", "enum": sorts}
            properties["descending"] = {"type": "boolean", "default": False}
        if not terse:
            properties["limit"] = {"type": "integer", "minimum": 1, "maximum": 50 - size}
        words = {"f": " and ".join(field.words for field in chosen)}
        suffix, binding = f"_by_{'_'.join(forms)}", {"filters": forms}
        return ToolDraft(properties, [], suffix, binding, words, (size,), ("search", size))

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The rows that match, with their ids and the values that were matched."""
        entity = entities()[tool.entity]
        rows = tables.get(entity.name, {}).items()
        matches = [(key, row) for key, row in rows if _holds(row, entity, tool, given)]
        sort = given.get("sort_by")
        if sort:
            matches = [match for match in matches if match[1][sort] is not None]
            matches.sort(key=lambda match: match[1][sort], reverse=bool(given.get("descending")))
        shown = [entity.label.name, *tool.binding["filters"], *([sort] if sort else [])]
        listed = [
            {entity.id_name: key, **{name: row[name] for name in dict.fromkeys(shown)}}
            for key, row in matches[: int(given.get("limit", 50))]
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
        given = [value] if form == "any" else value
        stated = _stated(entity, field, value, given)
        words = f"the only {entity.words} whose {field.words} is {stated.text}"
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
                stated = _stated(entity, field, value, value)
                words = f"the {entity.words} of {at.words} whose {field.words} is {stated.text}"
                return _finding(entity, {at.entity.id_name: at.source, name: stated}, words)
        return None

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """Count the rows that belong to the subject."""
        del view
        entity = entities()[tool.entity]
        if not _by_owner(tool, entity, at):
            return None
        names = plural(entity.words)
        facts = (ToldFact(f"number of {names}", ("total",), "int"),)
        given, words = {at.entity.id_name: at.source}, f"tell me how many {names} {at.words} has"
        return PlannedCall(given, words, f"lists those of {at.words}", facts=facts)


def _by_owner(tool: ToolSpec, entity: Entity, at: Subject) -> bool:
    """Whether the tool finds rows of the subject."""
    return entity.parent == at.entity.name and at.entity.id_name in tool.parameters["properties"]


def _stated(entity: Entity, field: Field, value: Any, given: Any) -> Stated:
    return Stated(f"{entity.name}.{field.name}", given, say_value(field, value), field.words)


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
    field = entity.field(name)
    ends = ("earliest", "latest") if field.kind == "date" else ("lowest", "highest")
    given: dict[str, Source] = {"sort_by": Implied(name)}
    if most:
        given["descending"] = Implied(True)
    return _finding(entity, given, f"the {entity.words} with the {ends[most]} {field.words}")


def _sortable(field: Field) -> bool:
    return kind_of(field).numeric or field.kind == "date"


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
        texts = (f"{field.words} from here on", f"{field.words} up to here")
        names = zip(_bound_names(field), texts, strict=True)
        return {name: {**short, "description": text} for name, text in names}
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


OPERATIONS: Final = (Get, Lookup, Compare, Count, Total, Search)
