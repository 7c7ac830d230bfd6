"""The fields of a scenario as an editor lays them out, read from the schema: nothing here knows a
field by name, so a field added to a section can be edited the same day.

Every value is text, as it would follow `--set` on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal, cast

from twin.figures.text_layout import capital
from twin.loading import catalog_parts
from twin.loading.catalog import SLOTS
from twin.loading.schema import scenario_schema

Node = Mapping[str, Any]
"""A JSON schema, or a part of one."""
Values = Mapping[str, Any]
"""A scenario as plain data: quantities are text with units."""

_HEADER: Final = ("schema", "name", "extends")
"""What a scenario has beside its sections."""
_SOURCED: Final = "/Sourced"
"""The definition of a number with its source: an edit is the planner's own, without one."""
_ACRONYMS: Final = {
    word.casefold(): word
    for word in (
        *("GPU", "GPUs", "SMs", "NIC", "NVLink", "PCIe", "HBM", "FP8", "BF16", "GEMM", "RL"),
        *("FFN", "MoE", "MLA", "MTP", "LoRA", "QK", "KV", "Q", "V", "RoPE", "NoPE", "ZeRO"),
    )
}
"""Words that the field spells its own way."""


@dataclass(frozen=True, slots=True)
class Field:
    """One editable field: its dotted path, its label, how it is entered, what may be chosen (for a
    choice one, for choices any number, for a switch true or false), and what it means."""

    path: str
    label: str
    kind: Literal["text", "choice", "choices", "switch"]
    options: tuple[str, ...] = ()
    help: str = ""
    empty: str = "null"
    """What the field is edited to where it is emptied."""
    decides: bool = False
    """True for the `kind` of a section: the settings of another kind mean nothing to it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the scenario: the fields that planners edit, and under `details` the numbers of
    the catalog parts that it names."""

    key: str
    title: str
    help: str
    fields: tuple[Field, ...]
    details: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True)
class _Walk:
    """One way through the schema, beside the values that say which alternative counts."""

    schema: Node
    values: Values

    def alternatives(self, node: Node) -> Iterator[Node]:
        """The plain schemas that a node allows, what is said beside a reference kept."""
        if "$ref" in node:
            if str(node["$ref"]).endswith(_SOURCED):
                return
            target: Node = self.schema["$defs"][str(node["$ref"]).rpartition("/")[2]]
            yield from self.alternatives(target)
            return
        union: list[Node] = node.get("anyOf") or node.get("oneOf") or node.get("allOf") or []
        if not union:
            yield node
        for one in union:
            yield from self.alternatives(one)

    def fields(self, path: str, node: Node, words: tuple[str, ...]) -> Iterator[Field]:
        """The fields at and below a path, catalog parts by name only."""
        allowed = list(self.alternatives(node))
        sections = [one for one in allowed if "properties" in one]
        text = str(node.get("description") or "")
        if tuple(path.split(".")) in SLOTS:
            names = catalog_parts(SLOTS[tuple(path.split("."))])
            yield Field(path, label(words), "choice", names, text or _said(sections))
        elif _told_by_kind(sections):
            kinds = tuple(kind for one in sections for kind in _kinds(one))
            yield Field(f"{path}.kind", label(words), "choice", kinds, text, decides=True)
            chosen = at(self.values, f"{path}.kind")
            for one in sections:
                if chosen in _kinds(one):
                    yield from self.below(path, one, words, but=("kind",))
        elif sections:
            yield from self.below(path, sections[0], words)
        else:
            yield _field(path, label(words), allowed, text)

    def below(
        self, path: str, section: Node, words: tuple[str, ...], but: tuple[str, ...] = ()
    ) -> Iterator[Field]:
        """The fields of a section."""
        for key, child in cast(Mapping[str, Node], section["properties"]).items():
            if key not in but:
                yield from self.fields(f"{path}.{key}", child, (*words, key))

    def parts(self, path: str, node: Node) -> Iterator[Section]:
        """The catalog parts at and below a path, each with its own numbers."""
        for one in self.alternatives(node):
            kinds = _kinds(one)
            if "properties" not in one or (kinds and at(self.values, f"{path}.kind") not in kinds):
                continue
            if tuple(path.split(".")) in SLOTS:
                own = tuple(self.below(path, one, (), but=("name",)))
                name = label(tuple(path.split(".")[-1:]))
                yield Section(path, name, _said([one]), own)
            for key, child in cast(Mapping[str, Node], one["properties"]).items():
                yield from self.parts(f"{path}.{key}", child)


def sections(schema: Node, values: Values) -> tuple[Section, ...]:
    """Every section of the scenario in the schema's order; `values` say which kinds are chosen."""
    walk = _Walk(schema, values)
    found: list[Section] = []
    for key, node in cast(Mapping[str, Node], schema["properties"]).items():
        if key in _HEADER or key not in values:  # a section of another kind of scenario
            continue
        slot = (key,) in SLOTS
        words = (key,) if slot or not _is_section(walk, node) else ()
        fields = tuple(walk.fields(key, node, words))
        said = str(node.get("description") or _said(list(walk.alternatives(node))))
        found.append(Section(key, label((key,)), said, fields, tuple(walk.parts(key, node))))
    return tuple(found)


def at(values: Values, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    found: Any = values
    for key in path.split("."):
        found = cast(Values, found).get(key) if isinstance(found, Mapping) else None
    return found


def written(values: Values, field: Field) -> str:
    """What the field holds, as a planner would write it; empty where it holds nothing."""
    value = at(values, field.path)
    if isinstance(value, Mapping) and "name" in value:  # a catalog part goes by its name
        return str(cast(Values, value)["name"])
    return as_text(value)


def as_text(value: Any) -> str:
    """A value as text that YAML reads back as the same value."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in cast(list[Any], value)):
        return listed(cast(list[str], value))
    return json.dumps(value)


def listed(values: list[str]) -> str:
    """Choices as they are written in a scenario: `[full]`."""
    return f"[{', '.join(values)}]"


def choices(text: str) -> list[str]:
    """The choices of a list as written."""
    return [word.strip() for word in text.strip("[] ").split(",") if word.strip()]


def typed(field: Field, text: str) -> str:
    """What follows `--set path=`: a field that was emptied holds nothing; words with a colon are
    quoted, or YAML would take them for a key and its value."""
    text = text.strip()
    if text in {"", "[]"}:
        return field.empty
    words = ": " in text and text[0] not in "{[\"'"
    return json.dumps(text, ensure_ascii=False) if words else text


def with_kinds(values: Values, edits: Mapping[str, str]) -> Values:
    """The values with edited kinds in the place of their own, so that the fields of the chosen kind
    are shown even while something else is wrong."""
    whole = dict(values)
    for path, value in edits.items():
        if path.endswith(".kind"):
            _put(whole, path.split("."), value)
    return whole


def _put(values: dict[str, Any], steps: list[str], value: str) -> None:
    key, *rest = steps
    if rest:
        below = values.get(key)
        values[key] = dict(cast(Values, below)) if isinstance(below, Mapping) else {}
        _put(values[key], rest, value)
    else:
        values[key] = value


def _field(path: str, named: str, allowed: list[Node], text: str) -> Field:
    """A field of plain values."""
    said = [str(one["description"]) for one in allowed if "description" in one]
    plain = Field(path, named, "text", help=text or "; ".join(said[:1]), empty=_empty(allowed))
    options = tuple(as_text(value) for one in allowed for value in one.get("enum", ()))
    if options:
        return replace(plain, kind="choice", options=options)
    if any(one.get("type") == "boolean" for one in allowed):
        return replace(plain, kind="switch", options=("true", "false"))
    items = [one["items"] for one in allowed if one.get("type") == "array" and "items" in one]
    many = tuple(str(value) for one in items for value in one.get("enum", ()))
    # Where the order counts, or an item may come twice, a list is text.
    if many and not path.endswith("order"):
        return replace(plain, kind="choices", options=many)
    return plain


def _empty(allowed: list[Node]) -> str:
    """How a field that holds nothing is written."""
    if any(one.get("type") == "null" for one in allowed):
        return "null"
    if any(one.get("type") == "array" for one in allowed):
        return "[]"
    text = any(one.get("type") == "string" and "x-unit" not in one for one in allowed)
    return '""' if text else "null"


def _kinds(section: Node) -> tuple[str, ...]:
    """The kinds that a section of a union goes by."""
    kind: Node = section.get("properties", {}).get("kind", {})
    return tuple(map(str, kind.get("enum", [kind["const"]] if "const" in kind else [])))


def _told_by_kind(found: list[Node]) -> bool:
    return bool(found) and all(_kinds(one) for one in found)


def _is_section(walk: _Walk, node: Node) -> bool:
    return any("properties" in one for one in walk.alternatives(node))


def _said(found: list[Node]) -> str:
    """What a section says of itself, in one line."""
    return " ".join(str(found[0].get("description", "")).split()) if found else ""


def label(words: tuple[str, ...]) -> str:
    """`("nic", "bandwidth")` is `NIC bandwidth`."""
    all_of = " ".join(words).replace("_", " ").split()
    return capital(" ".join(_ACRONYMS.get(word.casefold(), word) for word in all_of))


@cache
def schema() -> Node:
    """The schema of a scenario, as `twin schema` prints it."""
    return scenario_schema()
