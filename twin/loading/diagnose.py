"""What pydantic found wrong, as problems at the place where it was written.

pydantic names a place by `loc`, which holds the tag of a union beside the keys; following it in the
written tree drops what is no key. An unknown key is compared with the keys of its section; when it
is a slip for one that is missing, the two are one problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from twin.errors import FieldError, Origin, Problem
from twin.loading.tree import Branch, Child, Items, KeyPath, Leaf, Node, find, hint, nearest
from twin.spec.axis import Axis, members
from twin.spec.base import Spec, descriptions
from twin.units import BareNumberError, QuantityError

_COMPARED = 100
"""Unknown keys that are compared with the known ones: more than messages show."""


def diagnose(error: ValidationError, root: type[Spec], tree: Branch) -> list[Problem]:
    """One problem per mistake, in the order of the fields."""
    found = error.errors(include_url=False)
    unknown = [_followed(entry["loc"], tree) for entry in found if _is(entry, "extra_forbidden")]
    slips = {
        (*path[:-1], near)
        for path in unknown[:_COMPARED]
        if (near := nearest(path[-1], _keys(_section(root, tree, path[:-1]))))
    }
    problems: list[Problem] = []
    for entry in found:
        path = _followed(entry["loc"], tree)
        if _is(entry, "too_short") and _has_wrong_items(entry, found):
            continue  # a wrong item is not counted; it is told by itself
        if _is_of_other_choice(entry, found, tree):
            continue
        if _is(entry, "missing") and isinstance(entry["loc"][-1], int):
            problems.append(_short(tree, path, entry["loc"]))
        elif _is(entry, "missing"):
            path = (*path, str(entry["loc"][-1]))
            if path not in slips:
                problems.append(_missing(root, tree, path))
        elif _is(entry, "extra_forbidden"):
            problems.append(_unknown_key(root, tree, path, hinted=len(problems) < _COMPARED))
        else:
            problems.append(_wrong_value(root, tree, path, entry))
    return problems


def _has_wrong_items(entry: Mapping[str, Any], found: Iterable[Mapping[str, Any]]) -> bool:
    loc = entry["loc"]
    return any(other["loc"][: len(loc)] == loc and len(other["loc"]) > len(loc) for other in found)


def _is_of_other_choice(
    entry: Mapping[str, Any], found: Iterable[Mapping[str, Any]], tree: Branch
) -> bool:
    """Whether a field takes words or a list, and this is what is wrong with the one not written."""
    other = {"literal_error": Items, "tuple_type": Leaf}.get(str(entry["type"]))
    child = find(tree, _followed(entry["loc"], tree))
    if other is None or child is None or not isinstance(child.node, other):
        return False
    above = entry["loc"][:-1]
    return any(one is not entry and one["loc"][: len(above)] == above for one in found)


def _short(tree: Branch, path: KeyPath, loc: Sequence[str | int]) -> Problem:
    """A list that ends before its last value; pydantic counts from 0."""
    child = find(tree, path) or Child(tree.origin, tree)
    message = f"the list has no value {int(loc[-1]) + 1}"
    return Problem("TW011", ".".join(path), message, "add it", child.node.origin)


def _is(entry: Mapping[str, Any], kind: str) -> bool:
    return entry["type"] == kind


def _followed(loc: Iterable[str | int], tree: Branch) -> KeyPath:
    """The keys of a `loc` that exist in the tree; tags of unions, and a missing key, do not."""
    path: KeyPath = ()
    for step in loc:
        if find(tree, (*path, str(step))) is not None:
            path = (*path, str(step))
    return path


def _key(tree: Branch, path: KeyPath) -> Origin:
    child = find(tree, path)
    return child.key if child and path else tree.origin


def _where(path: KeyPath) -> str:
    return f" in `{'.'.join(path)}`" if path else ""


def _missing(root: type[Spec], tree: Branch, path: KeyPath) -> Problem:
    *above, key = path
    parent = tuple(above)
    section = _section(root, tree, parent)
    told = dict(zip(_keys(section), descriptions(section).values(), strict=True) if section else ())
    meaning = f" ({told[key]})" if told.get(key) else ""
    message = f"the key `{key}` is missing{_where(parent)}"
    fix = f"add `{key}: ...`{meaning}"
    return Problem("TW011", ".".join(path), message, fix, _key(tree, parent))


def _unknown_key(root: type[Spec], tree: Branch, path: KeyPath, *, hinted: bool) -> Problem:
    *above, key = path
    parent = tuple(above)
    keys = _keys(_section(root, tree, parent))
    # Every file may extend another; by the time fields are checked that key is gone.
    extra = ["extends"] if key != "extends" and not parent else []
    fix = hint(key, [*extra, *keys], "the keys here are") if hinted else ""
    message = f"unknown key `{key}`{_where(parent)}"
    return Problem("TW010", ".".join(path), message, fix, _key(tree, path))


def _wrong_value(
    root: type[Spec], tree: Branch, path: KeyPath, entry: Mapping[str, Any]
) -> Problem:
    """The problem for anything that is neither an unknown nor a missing key."""
    child = find(tree, path) or Child(tree.origin, tree)
    if str(entry["type"]).startswith("union_tag"):
        return _wrong_kind(root, tree, path, child)
    code, message, fix = _verdict(entry, child.node)
    fix = fix or _keys_to_write(root, tree, path, entry)
    return Problem(code, ".".join(path), message, fix, child.node.origin)


def _keys_to_write(root: type[Spec], tree: Branch, path: KeyPath, entry: Mapping[str, Any]) -> str:
    """What goes where something else stands for a section."""
    if _EXPECTED.get(str(entry["type"])) != _SECTION:
        return ""
    specs = _specs(_field(_section(root, tree, path[:-1]), path[-1])) if path else [root]
    choices = [kind for spec in specs for kind in _kinds(spec)]
    if len(choices) > 1:
        return f"add `kind:` and one of: {', '.join(choices)}"
    return hint("", [key for spec in specs for key in _keys(spec)], "the keys here are")


def _verdict(entry: Mapping[str, Any], node: Node) -> tuple[str, str, str]:
    """Code, message and hint for a value that its field refuses."""
    kind, context = str(entry["type"]), entry.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, FieldError):
        return cause.code, cause.message, cause.hint
    if isinstance(cause, QuantityError):
        code = "TW012" if isinstance(cause, BareNumberError) else "TW013"
        return code, cause.message, cause.hint
    if kind == "literal_error":
        return "TW016", *_not_a_choice(node, context)
    if kind in _BOUNDS:
        return "TW015", _BOUNDS[kind](context), ""
    if kind in _EXPECTED:
        return "TW014", *_wrong_type(kind, node)
    return "TW017", str(entry["msg"]), ""


def _wrong_kind(root: type[Spec], tree: Branch, path: KeyPath, child: Child) -> Problem:
    """A union of kinds with an unknown kind, or none."""
    field = _field(_section(root, tree, path[:-1]), path[-1])
    choices = [kind for member in _specs(field) for kind in _kinds(member)]
    dotted = ".".join((*path, "kind"))
    written = find(child.node, ("kind",))
    if written is None:
        message = f"the key `kind` is missing{_where(path)}"
        fix = f"add `kind:` and one of: {', '.join(choices)}"
        return Problem("TW011", dotted, message, fix, child.key)
    word = _shown(written.node)
    what = f"`{word}`" if word else _describe(written.node)
    message = f"{what} is no kind of `{path[-1]}`"
    return Problem("TW016", dotted, message, hint(word, choices), written.node.origin)


def _not_a_choice(node: Node, context: Mapping[str, Any]) -> tuple[str, str]:
    quoted = re.findall(r"'([^']*)'|(-?\d+)", str(context.get("expected", "")))
    choices = [text or number for text, number in quoted]
    return f"{_describe(node)} is not one of the choices", hint(_shown(node), choices)


def _wrong_type(kind: str, node: Node) -> tuple[str, str]:
    message = f"expected {_EXPECTED[kind]}, got {_describe(node)}"
    if isinstance(node, Leaf) and isinstance(node.value, str):
        text = node.value
        if kind.startswith(("int", "float")) and re.fullmatch(r"-?[0-9]{1,20}(\.[0-9]+)?", text):
            return message, f"write {text} without quotes"
        if kind.startswith("bool") and text.lower() in ("yes", "no", "on", "off", "y", "n"):
            return message, f"write {'true' if text.lower() in ('yes', 'on', 'y') else 'false'}"
    if kind.startswith(("tuple", "list")):
        return message, f"write the whole list, [{_item(node)}]"
    if kind.startswith("string") and isinstance(node, Leaf) and node.value is not None:
        return message, f'write "{_shown(node)}", with quotes'
    return message, ""


def _item(node: Node) -> str:
    """What a list in place of a value would hold: a word or a number, but no flag."""
    is_flag = isinstance(node, Leaf) and isinstance(node.value, bool)
    return "..." if is_flag else _shown(node) or "..."


_SECTION = "keys with values"
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "dict_type": _SECTION,
}
_BOUNDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda limits: f"must be more than {_number(limits['gt'])}",
    "greater_than_equal": lambda limits: f"must be at least {_number(limits['ge'])}",
    "less_than": lambda limits: f"must be less than {_number(limits['lt'])}",
    "less_than_equal": lambda limits: f"must be at most {_number(limits['le'])}",
    "finite_number": lambda _: "must be a finite number",
    "too_short": lambda limits: f"must have {_number(limits['min_length'])} or more values",
    "too_long": lambda limits: f"must have {_number(limits['max_length'])} or fewer values",
}


def _number(limit: float) -> str:
    return f"{limit:,.0f}" if float(limit).is_integer() else f"{limit:g}"


def _describe(node: Node) -> str:
    """What was written, in words."""
    match node:
        case Leaf(None):
            return "nothing"
        case Leaf(str() as text):
            return f"the text `{text}`"
        case Leaf():
            return f"`{_shown(node)}`"
        case Items():
            return "a list"
        case Branch():
            return "keys with values"


def _shown(node: Node) -> str:
    if not isinstance(node, Leaf) or node.value is None:
        return ""
    return str(node.value).lower() if isinstance(node.value, bool) else str(node.value)


def _section(root: type[Spec], tree: Branch, path: KeyPath) -> type[Spec] | None:
    """The class of the section at a path; where a union decides, by the `kind` that was written."""
    section: type[Spec] | None = root
    for depth, step in enumerate(path, 1):
        if step.isdecimal():
            continue  # an item of a list has the class that its list was given
        child = find(tree, path[:depth])
        node = child.node if child else None
        written = node.leaf("kind") if isinstance(node, Branch) else None
        specs = _specs(_field(section, step))
        told = [spec for spec in specs if written and written.value in _kinds(spec)]
        section = next(iter(told if len(specs) > 1 else specs), None)
    return section


def _field(section: type[Spec] | None, key: str) -> FieldInfo | None:
    fields = section.model_fields.items() if section else ()
    return next((field for name, field in fields if (field.alias or name) == key), None)


def _keys(section: type[Spec] | None) -> list[str]:
    fields = section.model_fields.items() if section else ()
    return [field.alias or name for name, field in fields]


def _specs(field: FieldInfo | None) -> list[type[Spec]]:
    """The sections that a field may hold."""
    if field is None:
        return []
    for mark in field.metadata:
        if isinstance(mark, Axis) and isinstance(field.annotation, type):
            return list(dict.fromkeys(members(mark.package, field.annotation).values()))
    return list(_inside(field.annotation))


def _inside(annotation: Any) -> Iterable[type[Spec]]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
    for argument in get_args(annotation):
        yield from _inside(argument)


def _kinds(spec: type[Spec]) -> Collection[str]:
    kind = spec.model_fields.get("kind")
    return get_args(kind.annotation) if kind else ()
