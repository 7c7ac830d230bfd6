"""The JSON Schema (2020-12) of a scenario file as a planner writes it, for editors and other
programs.

pydantic knows the fields of a resolved scenario. What only the loader knows is added here: names of
catalog parts, numbers with a source, `extends`, and which keys a file must hold. A file that
extends another may leave out anything, so no section requires keys by itself; they are required by
one condition at the root, for files that extend nothing.

A scenario is a training run or a weight update; the section `weight_update` makes it the latter,
and takes the place of those that are about training.

The schema is necessary, not sufficient: ranges of quantities, and what fields ask of each other,
only `twin check` sees.

Finding one's way in a JSON Schema of nested sections.

Every field of a scenario in words, from its JSON Schema: what it means, how it is written, and
what holds where nobody writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from twin import units
from twin.loading.catalog import PART_SPECS, SLOTS, PartKind, open_library, part_names
from twin.loading.files import read_data, shipped_scenarios
from twin.loading.tree import PHASES
from twin.network.topology import kinds
from twin.scenario import OF_A_PHASE, PhaseSpec, Scenario, UpdateScenario
from twin.sources import KINDS
from twin.spec.base import descriptions

Json: TypeAlias = dict[str, Any]
"""A JSON object."""

SOURCED: Final = "Sourced"
"""Name of the definition of a number that says where it comes from."""


PARTS: Final = frozenset(spec.__name__ for spec in PART_SPECS.values())
"""Names of the definitions of parts of the catalog."""
_WHOLE: Final = {"not": {"required": ["extends"]}}
"""What extends nothing."""


def choices(field: Json) -> list[Json]:
    """The schemas of which a value satisfies one: the field's own where there are no others."""
    return field.get("anyOf") or field.get("oneOf") or [field]


def reference(schema: Json) -> str | None:
    """The name of the definition that a schema refers to; None where it refers to none."""
    found = schema.get("$ref")
    return str(found).rpartition("/")[2] if found else None


def members(root: Json, field: Json) -> list[Json]:
    """The sections that a field may hold; where there are several, their `kind` tells them
    apart."""
    names = (reference(one) for one in choices(field))
    return [root["$defs"][name] for name in names if name not in (None, SOURCED)]


def field_at(root: Json, path: tuple[str, ...]) -> Json:
    """The schema of the field at a path, through fields that hold one section each."""
    section = root
    for key in path[:-1]:
        (section,) = members(root, section["properties"][key])
    return section["properties"][path[-1]]


def sections(root: Json) -> list[Json]:
    """The root, and every definition that has keys."""
    return [root, *(one for one in root["$defs"].values() if "properties" in one)]


def nodes(schema: Any) -> Iterator[Json]:
    """Every object in a schema, outer ones first."""
    if isinstance(schema, dict):
        found = cast(Json, schema)
        yield found
        for value in found.values():
            yield from nodes(value)
    elif isinstance(schema, list):
        for item in cast(list[Any], schema):
            yield from nodes(item)


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_GPU_CALIBRATION: Final = ("cluster", "node", "gpu", "calibration")
_FABRIC_KIND: Final = ("cluster", "fabric", "kind")


def scenario_schema(folders: Iterable[Path] = ()) -> Json:
    """The schema; names of parts are those under `folders`/catalog, and the shipped."""
    schema, update = (
        one.model_json_schema(schema_generator=_Described) for one in (Scenario, UpdateScenario)
    )
    schema["$defs"] |= update["$defs"]
    library, _ = open_library(folders)
    needs = _Needs(schema["$defs"])
    training, updating = (needs.of(one, optional=("calibration",)) for one in (schema, update))
    # Sections of a phase go over the scenario's, so they may leave out anything.
    training["properties"][PHASES] = {"items": {"required": ["name"]}}
    schema["properties"] = _of_both(schema["properties"], update["properties"])
    _plain(schema)
    for path, kind in SLOTS.items():
        _name_parts(field_at(schema, path), kind, part_names(library, kind))
        if len(path) == 1 and path[0] in OF_A_PHASE:
            of_phase = schema["$defs"][PhaseSpec.__name__]["properties"][path[0]]
            _name_parts(of_phase, kind, part_names(library, kind))
    of_gpu = {"enum": list(part_names(library, "calibrations")), "x-catalog": "calibrations"}
    field_at(schema, _GPU_CALIBRATION).update(of_gpu)
    field_at(schema, _FABRIC_KIND)["enum"] = list(kinds())
    del schema["properties"]["software"]["default"]  # the loader's depends on the layout
    _accept_sources(schema)
    _inherit_descriptions(schema)
    _extend_parts(schema)
    schema["properties"] = _with_extends(schema["properties"])
    return {
        "$schema": DIALECT,
        "title": "A scenario of the twin",
        "description": "A training run: model, cluster, layout, memory policy, training and price. "
        "Or a weight update: model, cluster and `weight_update`.",
        **{key: schema[key] for key in ("type", "properties", "additionalProperties")},
        "if": _WHOLE,
        "then": {"if": {"required": [UpdateScenario.section]}, "then": updating, "else": training},
        "dependentSchemas": {
            UpdateScenario.section: {
                "properties": dict.fromkeys(
                    sorted(Scenario.model_fields.keys() - UpdateScenario.model_fields.keys()), False
                )
            }
        },
        "$defs": dict(sorted(schema["$defs"].items())),
    }


class _Described(GenerateJsonSchema):
    """A schema whose fields have the docstrings below them as descriptions."""

    def model_schema(self, schema: core_schema.ModelSchema) -> Json:
        """Of a section."""
        found, section = super().model_schema(schema), schema["cls"]
        for name, told in descriptions(section).items():
            key = section.model_fields[name].alias or name
            if told and key in found["properties"]:
                found["properties"][key]["description"] = told
        return found


def _of_both(training: Json, update: Json) -> Json:
    """The sections of both kinds; what only an update has stands behind `train`."""
    own = {key: field for key, field in update.items() if key not in training}
    found: Json = {}
    for key, field in training.items():
        found |= {key: field} | (own if key == "train" else {})
    return found


@dataclass(frozen=True, slots=True)
class _Needs:
    """Which keys a file must hold that extends nothing; says so and no more, so that what a field
    is stands in one place."""

    definitions: Json

    def of(self, section: Json, optional: tuple[str, ...] = ()) -> Json:
        """The needs of a section and of those below it. A field that is `optional` for the loader
        may be left out, and holds a whole section only where it names one."""
        below = {key: self.of_field(field) for key, field in section["properties"].items()}
        below |= {key: _when({"required": ["name"]}, below[key]) for key in optional}
        required = [key for key in section.get("required", ()) if key not in optional]
        return _filled({"required": required, "properties": _filled(below)})

    def of_field(self, field: Json) -> Json:
        """The needs of what a field holds; JSON Schema asks keys of objects only, so names pass."""
        if field.get("type") == "array":
            return _filled({"items": self.of_field(field.get("items", {}))})
        names = [name for choice in choices(field) if (name := reference(choice))]
        if len(names) == 1:
            needs = self.of(self.definitions[names[0]])
            return _when(_WHOLE, needs) if names[0] in PARTS else needs
        told = [
            _when({"properties": {"kind": _kind(one)}, "required": ["kind"]}, self.of(one))
            for one in (self.definitions[name] for name in names)
        ]
        needs = {"required": ["kind"] if names else [], "allOf": [one for one in told if one]}
        return _filled(needs)


def _kind(member: Json) -> Json:
    kind = member["properties"]["kind"]
    return {key: kind[key] for key in ("const", "enum") if key in kind}


def _when(condition: Json, then: Json) -> Json:
    return {"if": condition, "then": then} if then else {}


def _filled(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if value}


def _plain(schema: Json) -> None:
    """Without what repeats the name of a field, what only OpenAPI reads, and required keys. A
    section without its `kind` may be of any kind, so one of a union is not one of exactly one."""
    for section in sections(schema):
        section.pop("required", None)
        section.pop("title", None)
        for field in section["properties"].values():
            field.pop("title", None)
            field.pop("discriminator", None)
            if "oneOf" in field:
                field["anyOf"] = field.pop("oneOf")
            if isinstance(field.get("default"), dict):
                del field["default"]  # the fields below have their own
            elif type(field.get("default")) in (int, float):
                field["default"] = _with_unit(field["default"], field)


def _with_unit(value: float, field: Json) -> float | str:
    """A default as it is written, with its unit where it has one."""
    for option in choices(field):
        dimension = units.of_noun(option.get("x-unit", ""))
        if dimension is not None:
            return units.format_quantity(value, dimension)
    return value


def _name_parts(field: Json, kind: PartKind, names: Iterable[str]) -> None:
    """Lets the name of a part stand for the section."""
    whole = field.pop("anyOf", None) or [{"$ref": field.pop("$ref")}]
    field["anyOf"] = [{"enum": list(names), "x-catalog": kind}, *whole]


def _extend_parts(schema: Json) -> None:
    """Lets a section change a part of the catalog, which it names."""
    told = "The part of the catalog that this one changes."
    extends = {"type": "string", "description": told}
    for name in PARTS & schema["$defs"].keys():
        section = schema["$defs"][name]
        section["properties"] = {"extends": extends, **section["properties"]}


def _accept_sources(schema: Json) -> None:
    """Lets every number of a part say where it comes from."""
    sourced = read_data(Path(__file__).with_name("sourced.yaml"))
    sourced["properties"]["kind"]["enum"] = list(KINDS)
    schema["$defs"][SOURCED] = sourced
    for section in _parts(schema):
        properties = section["properties"]
        properties |= {k: _or_sourced(one) for k, one in properties.items() if _is_number(one)}


def _or_sourced(field: Json) -> Json:
    """The field, or a number with its source; what is said of it holds either way."""
    said = {key: field[key] for key in ("description", "default") if key in field}
    bare = {key: value for key, value in field.items() if key not in said}
    return said | {"anyOf": [*bare.get("anyOf", [bare]), {"$ref": f"#/$defs/{SOURCED}"}]}


def _is_number(field: Json) -> bool:
    return any(
        one.get("type") in ("integer", "number") or "x-unit" in one for one in choices(field)
    )


def _parts(schema: Json) -> list[Json]:
    """The sections of the parts of the catalog, and those below."""
    found: dict[str, Json] = {}

    def walk(field: Any) -> None:
        for node in nodes(field):
            name = reference(node)
            if name is not None and name not in found:
                found[name] = schema["$defs"][name]
                walk(found[name])

    for path in SLOTS:
        walk(field_at(schema, path))
    return [one for name, one in found.items() if name != SOURCED]


def _inherit_descriptions(schema: Json) -> None:
    """Every field says what it means: a section's own first paragraph where the field is silent,
    and for `kind` that of its choice; then how it is written, and its default."""
    own = [one for one in sections(schema) if one is not schema["$defs"][SOURCED]]
    for section in own:
        section["description"] = " ".join(section["description"].partition("\n\n")[0].split())
    for section in own:
        for key, field in section["properties"].items():
            below = [section] if key == "kind" else members(schema, field)
            meaning = field.get("description") or (below[0]["description"] if below else "")
            field["description"] = _sentence(" ".join(meaning.split()))
    for section in own:
        for field in section["properties"].values():
            field["description"] += aside(field)


def _sentence(meaning: str) -> str:
    """A description as a sentence; one that begins with a value (`null: ...`) keeps it."""
    begins_with_value = re.match(r"[\w, ]+:", meaning)
    first = meaning[:1] if begins_with_value else meaning[:1].upper()
    return first + meaning[1:].rstrip(".") + "."


def _with_extends(properties: Json) -> Json:
    """The keys of the root; `extends` stands after `name`."""
    name = {
        "type": "string",
        "description": "A file, relative to this one, or a shipped scenario.",
        "examples": list(shipped_scenarios()),
    }
    extends = {
        "description": "What this file changes: another file, relative to this one, or a shipped "
        "scenario; or a list of them, the last on top. Sections merge, lists replace.",
        "anyOf": [name, {"type": "array", "items": name}],
    }
    first = {key: properties.pop(key) for key in ("schema", "name")}
    return {**first, "extends": extends, **properties}


_ENDLESS: Final = 1e9
"""A limit that nobody meets is not worth a word."""


_KEYS: Final = "its keys"
_SETTINGS: Final = "its settings with `kind`"


def aside(field: Json) -> str:
    """What follows the meaning of a field: how it is written, and its default. Of a section that
    has to be written out there is nothing to say."""
    default = default_of(field)
    words = "" if written(field) in (_KEYS, _SETTINGS) else f" Write {written(field)}."
    return words + (f" Default: {default}." if default else "")


def default_of(field: Json) -> str:
    """The default as it would be written; empty where there is none."""
    if "default" not in field:
        return ""
    return "none" if field["default"] in (None, "") else f"`{_literal(field['default'])}`"


def written(field: Json) -> str:
    """How a field is written, in words: its choices, its unit, its limits."""
    options = choices(field)
    names = [f"`{one['const']}`" for one in options if "const" in one]
    sections = [one for one in options if reference(one) not in (None, SOURCED)]
    words = [_words(one) for one in options if "const" not in one and "$ref" not in one]
    if names:
        words.insert(0, ", ".join(names))
    if sections:
        words.append(_KEYS if len(sections) == 1 else _SETTINGS)
    return " or ".join(words)


def _words(option: Json) -> str:
    """How one choice is written."""
    if "x-catalog" in option:
        return f"a name of `twin catalog {option['x-catalog']}`"
    if "enum" in option:
        return f"one of {', '.join(f'`{_literal(one)}`' for one in option['enum'])}"
    shown = option.get("examples", ())[: 2 if "x-unit" in option else 1]
    examples = " or ".join(f"`{one}`" for one in shown)
    words = {
        "integer": f"a whole number{_limits(option)}",
        "number": f"a number{_limits(option)}",
        "string": option.get("x-unit", "text") + (f", such as {examples}" if examples else ""),
        "boolean": "`true` or `false`",
        "null": "`null`",
        "object": "keys with values",
    }
    if "prefixItems" in option:
        return " and ".join(written(one) for one in option["prefixItems"]) + ", in a list"
    return f"a list: {written(option['items'])}" if "items" in option else words[option["type"]]


def _limits(option: Json) -> str:
    least, most = option.get("minimum"), option.get("maximum", _ENDLESS)
    if "exclusiveMinimum" in option:
        least = option["exclusiveMinimum"] + 1  # such limits are whole numbers' only
    low = f" from {least:,}" if least is not None else ""
    return low + (f" to {most:,}" if most < _ENDLESS else "")


def _literal(value: Any) -> str:
    """A value as YAML."""
    if isinstance(value, list):
        return f"[{', '.join(_literal(one) for one in value)}]"  # pyright: ignore[reportUnknownVariableType]
    return value if isinstance(value, str) else json.dumps(value)


_HEAD: Final = """\
# Fields of a scenario

Every field that a scenario file may hold; [how to write a scenario](scenarios.md) says how they
go together. `twin schema --format markdown` prints this page, from the schema that editors use.

A number of `model`, `cluster` or `calibration` may be written `{value, source, kind, range, note}`,
to say where it comes from. A file that extends another needs none of what is **required** here.
"""


def reference_page(schema: Json) -> str:
    """The field reference as Markdown: one table per section, in the order of the file."""
    page = _Page(schema)
    page.section(schema, _needs_of_both(schema["then"]), "")
    return "\n".join([_HEAD, *page.lines])


def _needs_of_both(needs: Json) -> Json:
    """What a file must hold, of whichever kind it is; `told` says where only one kind asks it."""
    training, update = needs["else"], needs["then"]
    told = {
        key: f"**required** in {kind}"
        for kind, own, other in (
            ("a training run", training, update),
            ("a weight update", update, training),
        )
        for key in own["required"]
        if key not in other["required"]
    }
    return {
        "required": training["required"],
        "properties": update["properties"] | training["properties"],
        "told": told,
    }


class _Page:
    """The lines of the page so far, and where each kind of section was first described."""

    def __init__(self, schema: Json) -> None:
        self.schema = schema
        self.lines: list[str] = []
        self.first: dict[int, str] = {}

    def section(self, section: Json, needs: Json, path: str) -> None:
        """A section's table, then the sections below it."""
        self.lines += ["| Field | Means | Write | Default |", "|---|---|---|---|"]
        told = dict.fromkeys(needs.get("required", ()), "**required**") | needs.get("told", {})
        self.lines += [_row(k, field, told.get(k)) for k, field in section["properties"].items()]
        self.lines.append("")
        for key, field in section["properties"].items():
            told = needs.get("properties", {}).get(key, {})
            self.below(field, told, f"{path}.{key}" if path else key)

    def below(self, field: Json, needs: Json, path: str) -> None:
        """The sections that a field may hold; what was described before is only named."""
        inside = members(self.schema, field.get("items", field))
        for member in inside:
            kind = f", kind {_value_kind(member)}" if len(inside) > 1 else ""
            self.lines += [f"## `{path}`{kind}", "", member["description"], ""]
            before = self.first.setdefault(id(member), path)
            if before != path:
                self.lines += [f"The fields are those of `{before}`.", ""]
            else:
                self.section(member, _needs(needs, field, member, len(inside)), path)


def _value_kind(member: Json) -> str:
    kind = member["properties"]["kind"]
    return " or ".join(f"`{name}`" for name in kind.get("enum") or [kind["const"]])


def _row(key: str, field: Json, required: str | None) -> str:
    means = field["description"].removesuffix(aside(field))
    cells = (f"`{key}`", means, written(field), required or default_of(field))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _needs(needs: Json, field: Json, member: Json, count: int) -> Json:
    """What a file must hold of one of the sections that a field may hold."""
    if field.get("type") == "array":
        needs = needs.get("items", {})
    if "then" in needs:
        needs = needs["then"]
    if count == 1:
        return needs
    kind = member["properties"]["kind"]
    own = {key: kind[key] for key in ("const", "enum") if key in kind}
    found = [
        one["then"] for one in needs.get("allOf", ()) if one["if"]["properties"]["kind"] == own
    ]
    return found[0] if found else {}
