"""Every field of a scenario in words, from its JSON Schema: what it means, how it is written, and
what holds where nobody writes it."""

from __future__ import annotations

import json
from typing import Any, Final

from twin.loading.json_schema import SOURCED, Json, choices, members, reference

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
            kind = f", kind {_kind(member)}" if len(inside) > 1 else ""
            self.lines += [f"## `{path}`{kind}", "", member["description"], ""]
            before = self.first.setdefault(id(member), path)
            if before != path:
                self.lines += [f"The fields are those of `{before}`.", ""]
            else:
                self.section(member, _needs(needs, field, member, len(inside)), path)


def _kind(member: Json) -> str:
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
