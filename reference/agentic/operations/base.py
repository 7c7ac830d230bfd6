"""The interface of operations, the calls that they plan for tasks, and the list of operations."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from reference.agentic.chance import drawn, number
from reference.agentic.domain import Entity, entities
from reference.agentic.tables import Row, Tables, put, row_of
from reference.agentic.texts import table
from reference.agentic.tool_spec import Effect, ToolSpec, schema
from reference.yaml_tables import yaml_table

Arguments = Mapping[str, Any]
_PHRASES = Path(__file__).with_name("phrases.yaml")
CallEffect = tuple[Tables, dict[str, Any]]
"""The rows after a call, and its result."""
Place = tuple[str | int, ...]
"""A path into a result."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A value that the user states, with its words."""

    slot: str
    value: Any
    text: str
    label: str = ""
    """The name in a question for it, such as `new rent`."""


@dataclass(frozen=True, slots=True)
class Implied:
    """A value that follows from the words of the goal, such as a sort order."""

    value: Any


@dataclass(frozen=True, slots=True)
class FromResult:
    """A value in the result of an earlier step."""

    step: int
    place: Place


Source = Stated | Implied | FromResult


@dataclass(frozen=True, slots=True)
class TaskView:
    """What an operation sees when it plans a call: rows, seeded draws, whether words are short."""

    tables: Tables
    draw: Random
    terse: bool

    def rows(self, entity: Entity) -> Mapping[str, Row]:
        """The rows of an entity by id."""
        return self.tables.get(entity.name, {})

    def children(self, entity: Entity, subject: Subject) -> list[Row]:
        """The rows of an entity that belong to the subject."""
        owner = subject.entity.id_name
        return [row for row in self.rows(entity).values() if row[owner] == subject.key]


@dataclass(frozen=True, slots=True)
class Subject:
    """The row that a chain has reached: its id, the source of the id, and words for the row."""

    entity: Entity
    key: str
    source: Source
    words: str


@dataclass(frozen=True, slots=True)
class ToldFact:
    """A value in a result that the answer must state."""

    label: str
    place: Place
    kind: str = ""
    """The kind of the value, which decides its wording."""
    choice: bool = False
    """Whether the value is one of a few words."""
    step: int = 0
    """The step of the chain with the result."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call as part of a task. A start or a hop has `words` for the row that it finds, whose id is
    at `finds`; an end has the user's request, with `<slot>` in place of a stated value."""

    arguments: Mapping[str, Source]
    words: str
    purpose: str
    finds: Place = ()
    entity: str = ""
    facts: tuple[ToldFact, ...] = field(default=())
    vague: Mapping[str, str] = field(default_factory=dict[str, str])
    """Words in place of a stated value that the user may withhold at first, by slot."""


@dataclass(frozen=True, slots=True)
class ToolDraft:
    """A tool before optional arguments and remarks."""

    name: str
    description: str
    properties: Mapping[str, Any]
    required: Sequence[str]
    binding: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Operation:
    """What a tool can do."""

    name: ClassVar[str]
    effect: ClassVar[Effect]
    of_owner: ClassVar[bool] = False
    """Whether its calls end at the owner of their entity, not at the entity itself."""

    def tools(self, entity: Entity, terse: bool) -> Iterator[ToolSpec]:
        """The operation's tools for an entity; terse tools have few arguments and short words."""
        for draft in self.drafts(entity, terse):
            description, properties = draft.description, draft.properties
            if not terse:
                properties = {**_options_of(draft.name), **properties}
                description += _remark_of(draft.name)
                order = drawn("order", draft.name).sample(list(properties), len(properties))
                properties = {name: properties[name] for name in order}
            yield ToolSpec(
                draft.name,
                description,
                schema(properties, draft.required, terse),
                entity.category,
                entity.application,
                self.effect,
                self.name,
                {"entity": entity.name, **draft.binding},
            )

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """The tools of an entity."""
        raise NotImplementedError

    def run(self, tables: Tables, tool: ToolSpec, given: Arguments) -> CallEffect:
        """The rows after a call with valid arguments, and its result. Raises Refused."""
        raise NotImplementedError

    def start(self, tool: ToolSpec, view: TaskView) -> PlannedCall | None:  # noqa: ARG002
        """A call that finds a row from what the user says."""
        return None

    def hop(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:  # noqa: ARG002
        """A call that finds another row from the subject."""
        return None

    def end(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """A call that does what the user wants with the subject."""
        entity = entities()[tool.entity]
        reached = entity.parent if self.of_owner else entity.name
        return self.finish(tool, view, at) if reached == at.entity.name else None

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:  # noqa: ARG002
        """The call of `end`, for a subject that fits."""
        return None

    def verb(self, terse: bool, *key: object) -> str:
        """One of the operation's verbs, always the same for the same key."""
        return choose(yaml_table(_PHRASES)[self.name]["verbs"], terse, *key)

    def describe(self, entity: Entity, terse: bool, *key: object, **names: str) -> str:
        """One of the operation's descriptions, always the same for the same key."""
        form = choose(yaml_table(_PHRASES)[self.name]["descriptions"], terse, entity.name, *key)
        owner = entities()[entity.parent].words if entity.parent else ""
        return form.format(
            a=a(entity.words),
            e=entity.words,
            es=plural(entity.words),
            l=entity.label.words,
            o=owner,
            p=entity.application.replace("_", " "),
            **names,
        )


@cache
def operations() -> Mapping[str, Operation]:
    """All operations by name."""
    package = importlib.import_module("reference.agentic.operations")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    classes = [kind for module in modules for kind in getattr(module, "OPERATIONS", ())]
    return {kind.name: kind() for kind in sorted(classes, key=lambda kind: kind.name)}


def _options_of(name: str) -> dict[str, Any]:
    """Up to three optional arguments of the tool of this name."""
    draw, options = drawn("options", name), table("options")["options"]
    chosen = draw.sample(list(options), draw.choice((0, 1, 1, 2, 2, 3)))
    return {option: options[option] for option in chosen}


def _remark_of(name: str) -> str:
    """Up to two remarks on the tool of this name; each begins with a space."""
    draw, remarks = drawn("remark", name), table("options")["remarks"]
    return "".join(f" {remark}" for remark in draw.sample(remarks, draw.choice((0, 1, 1, 2))))


def choose(options: Sequence[str], terse: bool, *key: object) -> str:
    """One of some phrases, always the same for the same key; the first if terse."""
    return options[0] if terse else options[number(*key) % len(options)]


def key_schema(entity: Entity, terse: bool) -> dict[str, Any]:
    """The schema of an id."""
    if terse:
        return {"type": "string"}
    description = f"Id of the {entity.words}, such as {entity.prefix}-1234."
    return {"type": "string", "pattern": f"^{entity.prefix}-[0-9]+$", "description": description}


def change(tables: Tables, entity: Entity, key: str, **values: Any) -> Tables:
    """The rows with new values in one row. Raises Refused if the row does not exist."""
    return put(tables, entity.name, key, {**row_of(tables, entity.name, key), **values})


def a(words: str) -> str:
    """The words with an article."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def plural(words: str) -> str:
    """The plural of the words."""
    if words.endswith("y") and words[-2] not in "aeiou":
        return f"{words[:-1]}ies"
    return f"{words}es" if words.endswith(("s", "x", "ch", "sh")) else f"{words}s"
