"""An axis of choice as one field: the members that a package defines become a union told apart by
their `kind`.

A package such as `twin.schedules` has one module per choice, with one final `Spec` that subclasses
the axis base and has a literal `kind`. A field `Annotated[Schedule, Axis("twin.schedules")]` then
takes any of them; its static type is the base, which is what callers should see. `Schedule | None`
also takes null. Where a member has nothing to set, its name alone stands for it: `gpipe` is
`{kind: gpipe}`. The name of a file stands for the section in it (`twin.loading`). Adding a choice
is adding a module; no list is edited.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import isabstract
from types import ModuleType, NoneType
from typing import Any, Final, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from twin.spec.base import Spec

_FILE: Final = {
    "type": "string",
    "pattern": r"\.(?:yaml|yml|json)$",
    "description": "A file beside this one that holds the section.",
}


@dataclass(frozen=True, slots=True)
class Axis:
    """Marks a field whose choices are the members of a package; put it into `Annotated`."""

    package: str

    def __get_pydantic_core_schema__(
        self, base: type[Spec], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        own = [one for one in get_args(base) if one is not NoneType]
        choices = {
            kind: handler.generate_schema(member)
            for kind, member in members(self.package, own[0] if own else base).items()
        }
        union: CoreSchema = core_schema.tagged_union_schema(choices, discriminator="kind")
        union = core_schema.nullable_schema(union) if own else union
        return core_schema.no_info_before_validator_function(_from_name, union)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The members in full, and by name those that need no settings."""
        schema = handler(core)
        absent = [one for one in schema.get("anyOf", ()) if one.get("type") == "null"]
        if absent:
            schema = next(one for one in schema["anyOf"] if one not in absent)
        sections: list[Any] = schema.pop("oneOf")
        definitions = [handler.resolve_ref_schema(dict(section)) for section in sections]
        names = [
            {"const": kind, "description": definition.get("description", "")}
            for definition in definitions
            if set(definition.get("required", ())) <= {"kind"}
            for kind in _kinds(definition["properties"]["kind"])
        ]
        return {**schema, "anyOf": [*names, _FILE, *sections, *absent]}


@cache
def members(package: str, base: type[Spec]) -> Mapping[str, type[Spec]]:
    """The concrete subclasses of `base` that the modules of a package define, by `kind`, in the
    order of their modules."""
    found: dict[str, type[Spec]] = {}
    for module in _modules(package):
        for member in vars(module).values():
            if not _is_member(member, base, module):
                continue
            for kind in get_args(member.model_fields["kind"].annotation):
                assert kind not in found, f"{kind} is defined by {found[kind]} and {member}"
                found[kind] = member
    return found


def axes(root: type[Spec]) -> dict[tuple[str, ...], Axis]:
    """Every field of `root` and its sections that is an axis, by its path."""
    marks = ((path, mark) for path, field in _fields(root) for mark in field.metadata)
    return {path: mark for path, mark in marks if isinstance(mark, Axis)}


def unions(root: type[Spec]) -> tuple[tuple[str, ...], ...]:
    """Every field of `root` and its sections that holds one of several sections, told apart by
    their `kind`: the axes, and the unions in which pydantic looks at `kind`."""
    return tuple(
        path
        for path, field in _fields(root, optional=True)
        if field.discriminator == "kind" or any(isinstance(one, Axis) for one in field.metadata)
    )


def _fields(
    root: type[Spec], prefix: tuple[str, ...] = (), *, optional: bool = False
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """The fields of `root` and of the sections that it always has, or may have, by their paths."""
    for name, field in root.model_fields.items():
        path = (*prefix, field.alias or name)
        yield path, field
        kinds = [one for one in get_args(field.annotation) if one is not type(None)]
        own = kinds[0] if optional and len(kinds) == 1 else field.annotation
        if isinstance(own, type) and issubclass(own, Spec):
            yield from _fields(own, path, optional=optional)


def _modules(package: str) -> Iterator[ModuleType]:
    folder = import_module(package)
    for name in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        yield import_module(f"{package}.{name}")


def _is_member(candidate: Any, base: type[Spec], module: ModuleType) -> bool:
    return (
        isinstance(candidate, type)
        and issubclass(candidate, base)
        and candidate is not base
        and not isabstract(candidate)
        and candidate.__module__ == module.__name__
    )


def _kinds(field: Mapping[str, Any]) -> list[str]:
    """The kinds that the JSON Schema of a field `kind` allows."""
    return field.get("enum") or [field["const"]]


def _from_name(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value
