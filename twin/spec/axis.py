"""An axis of choice as one field: the members that a package defines become a union told apart by
their `kind`.

A package such as `twin.schedules` has one module per choice, with one final `Spec` that subclasses
the axis base and has a literal `kind`. A field `Annotated[Schedule, Axis("twin.schedules")]` then
takes any of them; its static type is the base, which is what callers should see. Where a member has
nothing to set, its name alone stands for it: `gpipe` is `{kind: gpipe}`. Adding a choice is adding
a module; no list is edited.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import isabstract
from types import ModuleType
from typing import Any, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from twin.spec.base import Spec


@dataclass(frozen=True, slots=True)
class Axis:
    """Marks a field whose choices are the members of a package; put it into `Annotated`."""

    package: str

    def __get_pydantic_core_schema__(
        self, base: type[Spec], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        choices = {
            kind: handler.generate_schema(member)
            for kind, member in members(self.package, base).items()
        }
        union = core_schema.tagged_union_schema(choices, discriminator="kind")
        return core_schema.no_info_before_validator_function(_from_name, union)


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


def axes(root: type[Spec], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Axis]:
    """Every field of `root` and its sections that is an axis, by its path."""
    found: dict[tuple[str, ...], Axis] = {}
    for name, field in root.model_fields.items():
        path = (*prefix, field.alias or name)
        marks = [mark for mark in field.metadata if isinstance(mark, Axis)]
        if marks:
            found[path] = marks[0]
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Spec):
            found |= axes(field.annotation, path)
    return found


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


def _from_name(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value
