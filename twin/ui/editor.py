"""The scenario editor: one widget per field of the schema. What is typed becomes an edit at once,
valid or not; nothing typed is lost.

The fields of a scenario as an editor lays them out, read from the schema: nothing here knows a
field by name, so a field added to a section can be edited the same day.

Every value is text, as it would follow `--set` on the command line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal, cast

import streamlit as st

from twin.errors import DEFAULT, Problem, render
from twin.figures.plotly import capital
from twin.loading import catalog_parts
from twin.loading.catalog import SLOTS
from twin.loading.schema import scenario_schema
from twin.scenario import Root
from twin.ui import session
from twin.ui.place import code
from twin.ui.session import widget_key
from twin.ui.workspace import Draft, Workspace

_FIELD: Final = 176
"""Pixels of a field: two side by side in the narrowest window, four at 1,280."""
_WIDE: Final = 272
"""Pixels of a field whose options are long: two of them beside a narrow one at 1,280."""
_WIDEST: Final = 2 * _FIELD + 16
"""Pixels of a field in which several options are chosen."""
_LETTERS: Final = 13
"""Letters of an option that a field shows whole."""
_ACROSS: Final = 4
"""Fields of a section that are all shown; of more, those that the scenario says nothing of wait."""
_SHORT: Final = 14
"""Characters of an earlier value that a label repeats."""
_SWITCH: Final = ("true", "false")
_NOT_SET: Final = "not set"
"""The option of a field that may hold nothing."""


@dataclass(frozen=True, slots=True)
class Form:
    """What an editor shows: the open plan, the scenario before its edits, the values of both, and
    what is wrong with the plan."""

    plan: Draft
    file: Root
    now: Values
    before: Values
    problems: tuple[Problem, ...]

    @property
    def wrong(self) -> frozenset[str]:
        """The paths that problems are about."""
        return frozenset(wrong_with(one, self.plan) for one in self.problems)

    def told(self, field: Field) -> bool:
        """True where the file or an edit says the field; elsewhere its default stands."""
        said = self.file.origin(field.path) != DEFAULT or field.path in dict(self.plan.edits)
        return said or field.path in self.wrong


_NAMED: Final = 8
"""Folded fields that are named."""


def edit(form: Form, section: Section, words: str = "") -> None:
    """The fields of a section with `words` below them; folded away are those that keep their
    defaults, where they are many, and the numbers of the parts that it names."""
    with st.container(border=True):
        if len(section.fields) > 1:
            st.header(section.title, anchor=False, help=section.help)
        many = len(section.fields) > _ACROSS
        more = tuple(one for one in section.fields if many and not form.told(one))
        _rows(form, tuple(one for one in section.fields if one not in more))
        if words:
            st.caption(words)
        own = [one for one in form.problems if within(wrong_with(one, form.plan), section.key)]
        if own:
            code(render(own))
        if more:
            names = ", ".join(one.label for one in more[:_NAMED])
            names += f" and {len(more) - _NAMED} others" if len(more) > _NAMED else ""
            with st.expander(f"More: {names}", key=f"{form.plan.name}|{section.key}|more"):
                _rows(form, more)
        if section.details:
            _details(form, section)


def _details(form: Form, section: Section) -> None:
    """The numbers of the catalog parts that a section names, drawn once they are asked for."""
    names = ", ".join(dict.fromkeys(filter(None, (_name(form, part) for part in section.details))))
    inside = {field.path for part in section.details for field in part.fields}
    edited = sum(path in inside for path, _ in form.plan.edits)
    label = f"{names or section.title}: all parameters"
    label += f" :orange[({edited} edited)]" if edited else ""
    key = f"{form.plan.name}|{section.key}|parts"
    if form.wrong & inside:
        box = st.expander(label, expanded=True, key=f"{key}|wrong")
    else:
        box = st.expander(label, expanded=edited > 0, key=key, on_change="rerun")
    if form.wrong & inside or box.open:
        with box:
            for part in section.details:
                st.markdown(f"**{part.title} {_name(form, part)}**", help=part.help)
                _rows(form, part.fields)


def wrong_with(problem: Problem, plan: Draft) -> str:
    """The path of the field that a problem is about. An override that the loader could not even
    read is known by its place among the edits only."""
    if not problem.path and problem.origin is not None and problem.origin.file == "--set":
        return plan.sets[problem.origin.line - 1].partition("=")[0]
    return problem.path


def within(path: str, section: str) -> bool:
    """True where a path is a section's, or of a field below it."""
    return path == section or path.startswith(f"{section}.")


def _rows(form: Form, fields: tuple[Field, ...]) -> None:
    """Boxes side by side, as many as the page has room for, then switches."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for field in fields:
            if field.kind != "switch":
                with st.container(width=_width(field)):
                    _widget(form, field)
    with st.container(horizontal=True, gap="medium"):
        for field in fields:
            if field.kind == "switch":
                _widget(form, field)


def _width(field: Field) -> int:
    """Pixels of a field, so that what is chosen in it can be read."""
    if field.kind == "choices":
        return _WIDEST
    longest = max(map(len, field.options), default=0)
    return _WIDE if field.kind == "choice" and longest > _LETTERS else _FIELD


def _widget(form: Form, field: Field) -> None:
    edits = dict(form.plan.edits)
    before, now = written(form.before, field), written(form.now, field)
    text = edits.get(field.path, now)
    text = "" if field.path in edits and text == field.empty else text
    name = f"{form.plan.name}|{field.path}"
    label = _label(form, field, before)
    hint = f"`{field.path}`" + (f": {field.help}" if field.help else "")
    match field.kind:
        case "text":
            key = widget_key(name, text)
            st.text_input(
                label, text, key=key, help=hint, on_change=_typed, args=(field, key, before)
            )
        case "switch" if text in _SWITCH:
            key = widget_key(name, text == "true")
            st.toggle(
                label,
                text == "true",
                key=key,
                help=hint,
                on_change=_typed,
                args=(field, key, before),
            )
        case "choice" | "switch":
            options = _with(text, field.options)
            chosen = _spelt(text, options)
            key = widget_key(name, chosen)
            st.selectbox(
                label,
                options,
                options.index(chosen),
                format_func=lambda option: option or _NOT_SET,
                key=key,
                help=hint,
                on_change=_typed,
                args=(field, key, before),
            )
        case "choices":
            key = widget_key(name, choices(text))
            st.pills(
                label,
                list(dict.fromkeys([*field.options, *choices(text)])),
                selection_mode="multi",
                default=choices(text),
                key=key,
                help=hint,
                on_change=_typed,
                args=(field, key, before),
            )


def _label(form: Form, field: Field, before: str) -> str:
    """The field's name in plain text, for screen readers; what it was, and whether it is wrong."""
    label, paths = field.label, form.wrong
    if field.path in paths or (field.decides and field.path.rpartition(".")[0] in paths):
        label += " (invalid)"
    if field.path in dict(form.plan.edits):
        was = before if len(before) <= _SHORT else f"{before[:_SHORT]}..."
        empty = _NOT_SET if "" in field.options else "empty"
        label += f" (was {was or empty})"
    return label


def _typed(field: Field, key: str, before: str) -> None:
    """Make an edit of what the widget now says; none where that is what stood there before."""
    value: str | list[str] | bool = st.session_state[key]
    match value:
        case bool():
            text = as_text(value)
        case list():
            text = listed(value)
        case str():
            text = value

    def change(on: Workspace) -> Workspace:
        plan = on.open
        outer = any(field.path.startswith(f"{path}.") for path, _ in plan.edits)
        forget = field.path.rpartition(".")[0] if field.decides else ""
        edited = plan.edited(field.path, typed(field, text), forget=forget)
        same = typed(field, text) == typed(field, before) and not outer
        return on.changed(lambda _: edited.without(field.path) if same else edited)

    session.change(change)


def _name(form: Form, part: Section) -> str:
    return written(form.now, Field(part.key, part.title, "choice"))


def _with(text: str, options: tuple[str, ...]) -> list[str]:
    """The options, and what stands there where it is none of them."""
    known = any(text.casefold() == one.casefold() for one in options)
    return list(options) if known else [text, *options]


def _spelt(text: str, options: list[str]) -> str:
    """The option that is meant: a part may spell its own name otherwise than its file."""
    return next((one for one in options if one.casefold() == text.casefold()), text)


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
    default: Any = None
    """What stands where its section does not write it."""
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
        nullable = any(one.get("type") == "null" for one in allowed)
        if tuple(path.split(".")) in SLOTS:
            names = catalog_parts(SLOTS[tuple(path.split("."))])
            if nullable:
                names = ("", *names)
            yield Field(path, label(words), "choice", names, text or _said(sections))
        elif sections and all(map(_kinds, sections)):
            kinds = tuple(kind for one in sections for kind in _kinds(one))
            yield Field(f"{path}.kind", label(words), "choice", kinds, text, decides=True)
            chosen = at(self.values, f"{path}.kind")
            for one in sections:
                if chosen in _kinds(one):
                    yield from self.below(path, one, words, but=("kind",))
        elif sections:
            yield from self.below(path, sections[0], words)
        else:
            plain = _field(path, label(words), allowed, text)
            yield plain if nullable else replace(plain, default=node.get("default"))

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
                own = tuple(self.below(path, one, (), but=("name", "extends")))
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
        below = any("properties" in one for one in walk.alternatives(node))
        words = (key,) if slot or not below else ()
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
    if value is None and at(values, field.path.rpartition(".")[0]) is not None:
        value = field.default
    if isinstance(value, Mapping) and "name" in value:  # a catalog part goes by its name
        return str(cast(Values, value)["name"])
    return as_text(value)


def as_text(value: Any) -> str:
    """A value as text that YAML reads back as the same value."""
    if value is None:
        return ""
    if isinstance(value, str):
        return json.dumps(value) if value.replace(".", "", 1).isdigit() else value
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
