"""An operation, and the list of all of them: a file of `operations/` each."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from reference.agentic.chance import drawn, number
from reference.agentic.domain import Entity
from reference.agentic.options import options_of, remark_of
from reference.agentic.tables import Tables
from reference.agentic.tasks.plan import At, Look, Use
from reference.agentic.tools.spec import Effect, ToolSpec, schema

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """A thing that tools can do."""

    name: str
    effect: Effect
    tools: Callable[[Entity, bool], Iterator[ToolSpec]]
    """Its tools for a kind of things; true for terse ones: few arguments, short words."""
    run: Callable[[Tables, ToolSpec, Arguments], tuple[Tables, dict[str, Any]]]
    """The rows after a call whose arguments fit the schema, and the result. Raises Refused."""
    start: Callable[[ToolSpec, Look], Use | None] | None = None
    """Finds something from what the user says."""
    hop: Callable[[ToolSpec, Look, At], Use | None] | None = None
    """Finds something else from what is found."""
    end: Callable[[ToolSpec, Look, At], Use | None] | None = None
    """Does what the user wants with what is found."""


@cache
def operations() -> Mapping[str, Operation]:
    """All operations by name."""
    package = importlib.import_module("reference.agentic.operations")
    names = sorted(one.name for one in pkgutil.iter_modules(package.__path__))
    found = [importlib.import_module(f"{package.__name__}.{name}").OPERATION for name in names]
    return {one.name: one for one in found}


def choose(options: Sequence[str], terse: bool, *words: object) -> str:
    """One of some phrases, always the same for the same words; the first one if terse."""
    return options[0] if terse else options[number(*words) % len(options)]


def tool(
    entity: Entity,
    effect: Effect,
    name: str,
    told: str,
    properties: Mapping[str, Any],
    required: Sequence[str],
    **binding: Any,
) -> ToolSpec:
    """A tool of a kind of things; `terse` and `operation` stand in the binding."""
    terse, operation = binding.pop("terse"), binding.pop("operation")
    if not terse:
        properties = {**options_of(name), **properties}
        told += remark_of(name)
        order = drawn("order", name).sample(list(properties), len(properties))
        properties = {one: properties[one] for one in order}
    parameters = schema(properties, required, terse)
    bound = {"entity": entity.name, **binding}
    return ToolSpec(
        name, told, parameters, entity.category, entity.application, effect, operation, bound
    )


def key_schema(entity: Entity, terse: bool) -> dict[str, Any]:
    """The schema of an id."""
    if terse:
        return {"type": "string"}
    told = f"Id of the {entity.words}, such as {entity.prefix}-1234."
    return {"type": "string", "pattern": f"^{entity.prefix}-[0-9]+$", "description": told}


def a(words: str) -> str:
    """The words with an article."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
