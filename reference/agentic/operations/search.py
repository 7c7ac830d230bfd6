"""Find things by their values: equal, in a range, sorted, so many of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reference.agentic.chance import drawn
from reference.agentic.domain import Entity, Field, entities
from reference.agentic.operation import Arguments, Operation, choose, key_schema, tool
from reference.agentic.tables import Row, Tables
from reference.agentic.tasks.plan import At, Look, Meant, Said, Source, Use
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import kind_of, plain, say_value, schema_of

_TOLD = (
    "List {es} by {f}.",
    "Search the {es} of the {a} by {f}; without a filter all of them are listed.",
    "All {es} that match {f}, with their ids and what was matched.",
    "Filter {es}: every filter that is given must hold ({f}).",
    "Query {es} by {f}, sorted where a sort field is named.",
)
_FILTERS = 3
"""Most filters of a tool."""


def _tools(entity: Entity, terse: bool) -> Iterator[ToolSpec]:
    fit = [one for one in entity.fields[1:] if plain(one, terse)]
    draw = drawn("search", entity.name)
    sizes = (1,) if terse else (1, 2, 3)
    for size in sizes:
        chosen = sorted(draw.sample(fit, min(size, _FILTERS, len(fit))), key=fit.index)
        if terse:
            chosen = [one for one in fit if one.kind == "enum"][:1] or chosen
        yield _tool(entity, chosen, terse, size)


def _tool(entity: Entity, chosen: list[Field], terse: bool, size: int) -> ToolSpec:
    forms = {one.name: _form(one, size, terse) for one in chosen}
    properties: dict[str, Any] = {}
    for one in chosen:
        properties |= _filter(one, forms[one.name], terse)
    owner = entities()[entity.parent] if entity.parent else None
    if owner is not None and (terse or size > 1):
        properties[owner.id_name] = key_schema(owner, terse)
    sorts = [one.name for one in entity.fields if kind_of(one).numeric or one.kind == "date"]
    if sorts and not terse and size != 2:
        properties["sort_by"] = {"type": "string", "enum": sorts}
        properties["descending"] = {"type": "boolean", "default": False}
    if not terse:
        properties["limit"] = {"type": "integer", "minimum": 1, "maximum": 50 - size}
    words = " and ".join(one.words for one in chosen)
    verb = choose(("list", "search", "query", "filter", "browse"), terse, entity.name, size)
    told = choose(_TOLD, terse, entity.name, "search", size).format(
        es=_plural(entity.words), f=words, a=entity.application.replace("_", " ")
    )
    name = f"{verb}_{_plural(entity.name)}_by_{'_'.join(one.name for one in chosen)}"
    return tool(
        entity,
        "read",
        name,
        told,
        properties,
        [],
        terse=terse,
        operation="search",
        filters=forms,
    )


def _form(one: Field, size: int, terse: bool) -> str:
    """`is`, `range` (an object), `bounds` (two arguments) or `any` (a list of words)."""
    if terse or one.kind == "bool":
        return "is"
    if kind_of(one).numeric:
        return "range" if size % 2 else "bounds"
    if one.kind == "enum":
        return "any" if size == 3 else "is"
    return "bounds" if one.kind in ("date", "time") else "is"


def _filter(one: Field, form: str, terse: bool) -> dict[str, Any]:
    made = schema_of(one, terse)
    plain = {key: made[key] for key in ("type", "format", "enum") if key in made}
    if form == "range":
        told = f"Least and greatest {one.words}."
        nested = {"min": {"type": "number"}, "max": {"type": "number"}}
        inner = {"type": "object", "properties": nested, "description": told}
        return {f"{one.name}_range": {**inner, "additionalProperties": False}}
    if form == "bounds":
        low, high = _bound_names(one)
        return {
            low: {**plain, "description": f"{one.words} from here on"},
            high: {**plain, "description": f"{one.words} up to here"},
        }
    if form == "any":
        return {one.name: {"type": "array", "items": plain, "minItems": 1}}
    return {one.name: made}


def _bound_names(one: Field) -> tuple[str, str]:
    if one.kind in ("date", "time"):
        return f"{one.name}_after", f"{one.name}_before"
    return f"min_{one.name}", f"max_{one.name}"


def _run(tables: Tables, spec: ToolSpec, given: Arguments) -> tuple[Tables, dict[str, Any]]:
    entity = entities()[spec.entity]
    rows = tables.get(entity.name, {})
    found = [(key, row) for key, row in rows.items() if _holds(row, entity, spec, given)]
    sort = given.get("sort_by")
    if sort:
        found = [one for one in found if one[1][sort] is not None]
        found.sort(key=lambda one: one[1][sort], reverse=bool(given.get("descending")))
    found = found[: int(given.get("limit", 50))]
    shown = [entity.label.name, *spec.binding["filters"], *([sort] if sort else [])]
    listed = [
        {entity.id_name: key, **{name: row[name] for name in dict.fromkeys(shown)}}
        for key, row in found
    ]
    return tables, {"total": len(listed), "matches": listed}


def _holds(row: Row, entity: Entity, spec: ToolSpec, given: Arguments) -> bool:
    owner = f"{entity.parent}_id"
    if owner in given and row.get(owner) != given[owner]:
        return False
    for name, form in spec.binding["filters"].items():
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


def _limits(one: Field, form: str, given: Arguments) -> tuple[Any, Any]:
    if form == "range":
        span = given.get(f"{one.name}_range", {})
        return span.get("min"), span.get("max")
    if form == "bounds":
        low, high = _bound_names(one)
        return given.get(low), given.get(high)
    return None, None


def _start(spec: ToolSpec, look: Look) -> Use | None:
    """The one thing that has some value."""
    entity = entities()[spec.entity]
    rows = look.tables.get(entity.name, {})
    forms: Mapping[str, str] = spec.binding["filters"]
    if not rows:
        return None
    name = look.draw.choice(list(forms))
    one, form = entity.field(name), forms[name]
    value = look.draw.choice(list(rows.values()))[name]
    fits = [row for row in rows.values() if row[name] == value]
    if form not in ("is", "any") or len(fits) != 1:
        return _extreme(spec, look, entity)
    said = Said(f"{entity.name}.{name}", value, say_value(one, value), one.words)
    given: dict[str, Source] = {name: said}
    if form == "any":
        given[name] = Said(said.slot, [value], said.text, one.words)
    words = f"the only {entity.words} whose {one.words} is {said.text}"
    finds = ("matches", 0, entity.id_name)
    return Use(given, words, f"finds the {entity.words}", finds, entity.name)


def _extreme(spec: ToolSpec, look: Look, entity: Entity) -> Use | None:
    sorts = spec.parameters["properties"].get("sort_by", {}).get("enum", [])
    if not sorts:
        return None
    name, most = look.draw.choice(sorts), look.draw.random() < 0.5
    values = [row[name] for row in look.tables[entity.name].values()]
    if None in values or values.count(max(values) if most else min(values)) != 1:
        return None
    kind = entity.field(name).kind
    word = ("latest" if most else "earliest") if kind == "date" else "highest" if most else "lowest"
    given: dict[str, Source] = {"sort_by": Meant(name)}
    if most:
        given["descending"] = Meant(True)
    words = f"the {entity.words} with the {word} {entity.field(name).words}"
    finds = ("matches", 0, entity.id_name)
    return Use(given, words, f"finds the {entity.words}", finds, entity.name)


def _hop(spec: ToolSpec, look: Look, at: At) -> Use | None:
    """Down to one of those that belong to it."""
    entity = entities()[spec.entity]
    if entity.parent != at.entity.name or at.entity.id_name not in spec.parameters["properties"]:
        return None
    own = [row for row in look.tables[entity.name].values() if row[at.entity.id_name] == at.key]
    forms: Mapping[str, str] = spec.binding["filters"]
    for name, form in forms.items():
        values = [row[name] for row in own if form == "is"]
        single = [value for value in values if values.count(value) == 1]
        if single:
            value = look.draw.choice(single)
            one = entity.field(name)
            said = Said(f"{entity.name}.{name}", value, say_value(one, value), one.words)
            words = f"the {entity.words} of {at.words} whose {one.words} is {said.text}"
            given: dict[str, Source] = {at.entity.id_name: at.source, name: said}
            finds = ("matches", 0, entity.id_name)
            return Use(given, words, f"finds the {entity.words}", finds, entity.name)
    return None


def _end(spec: ToolSpec, _: Look, at: At) -> Use | None:
    """How many belong to it."""
    entity = entities()[spec.entity]
    if entity.parent != at.entity.name or at.entity.id_name not in spec.parameters["properties"]:
        return None
    words = f"tell me how many {_plural(entity.words)} {at.words} has"
    facts = ((f"number of {_plural(entity.words)}", ("total",), "int", False),)
    return Use({at.entity.id_name: at.source}, words, f"lists those of {at.words}", facts=facts)


def _plural(words: str) -> str:
    if words.endswith("y") and words[-2] not in "aeiou":
        return f"{words[:-1]}ies"
    return f"{words}es" if words.endswith(("s", "x", "ch", "sh")) else f"{words}s"


OPERATION = Operation("search", "read", _tools, _run, _start, _hop, _end)
