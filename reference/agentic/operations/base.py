"""The interface of operations, the calls that they plan for tasks, and the list of operations."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from reference.agentic.chance import drawn, number
from reference.agentic.domain import Entity, Field, Row, Tables, entities, put, row_of, table
from reference.dialog import declared
from reference.files import yaml_table

Effect = Literal["read", "create", "update", "delete", "unknown"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool of the repository."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments."""
    category: str
    application: str
    effect: Effect
    """The effect of a call on the rows; `unknown` for an imported tool."""
    operation: str = ""
    """The operation that runs it; empty for an imported tool, which only refuses."""
    binding: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the operation works on: `entity`, and names of its own."""

    @property
    def path(self) -> str:
        """Category, application and name."""
        return f"{self.category}/{self.application}/{self.name}"

    @property
    def entity(self) -> str:
        """The entity it works on; empty for an imported tool."""
        return str(self.binding.get("entity", ""))

    def declaration(self) -> dict[str, Any]:
        """The declaration in OpenAI's `tools` and Kimi K2's template."""
        return declared(self.name, self.description, self.parameters)

    def json(self) -> dict[str, Any]:
        """The tool as one JSON object; `ToolSpec(**...)` reads it."""
        return asdict(self)


def schema(
    properties: Mapping[str, Any], required: Sequence[str], terse: bool = False
) -> dict[str, Any]:
    """The schema of an object of arguments; `terse` leaves out that others are refused."""
    made = {"type": "object", "properties": dict(properties), "required": list(required)}
    return made if terse else {**made, "additionalProperties": False}


def form_of(schema: Any) -> Any:
    """A schema without names, numbers, texts and choices; the number of different forms measures
    the variety of arguments."""
    if not isinstance(schema, Mapping):
        return type(schema).__name__
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = sorted(str(form_of(inner)) for inner in value.values())
        elif key in ("items", "additionalProperties"):
            made[key] = form_of(value)
        elif key == "anyOf":
            made[key] = [str(form_of(inner)) for inner in value]
        elif key in ("type", "format"):
            made[key] = value
        elif key == "required":
            made[key] = len(value)
        else:
            made[key] = "..."
    return made


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
    """The arguments of a tool, and the keys of its name and description."""

    properties: Mapping[str, Any]
    required: Sequence[str]
    suffix: str = ""
    """Of the name, behind verb and entity."""
    binding: Mapping[str, Any] = field(default_factory=dict[str, Any])
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields in the description."""
    verb_key: tuple[object, ...] = ()
    text_key: tuple[object, ...] = ()
    """Keys that choose the phrases; empty: the operation's name."""


class Operation:
    """What a tool can do."""

    name: ClassVar[str]
    effect: ClassVar[Effect] = "read"
    of_owner: ClassVar[bool] = False
    """Whether its calls end at the owner of their entity, not at the entity itself."""

    def tools(self, entity: Entity, terse: bool) -> Iterator[ToolSpec]:
        """The operation's tools for an entity; terse tools have few arguments and short words."""
        for draft in self.drafts(entity, terse):
            name, description = self._named(entity, draft, terse)
            properties = draft.properties
            if not terse:
                properties = {**_options_of(name), **properties}
                description += _remark_of(name)
                order = drawn("order", name).sample(list(properties), len(properties))
                properties = {name: properties[name] for name in order}
            yield ToolSpec(
                name,
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

    def extra(self, terse: bool, *key: object, f: str = "") -> dict[str, Any]:
        """One of the operation's sets of further arguments, always the same for the same key; none
        if terse. `f` is the field in their descriptions."""
        forms = yaml_table(_PHRASES)[self.name]["extra"]
        chosen = {} if terse else forms[number(*key) % len(forms)]
        return {
            name: given | {k: given[k].format(f=f) for k in ("description",) if k in given}
            for name, given in chosen.items()
        }

    def _named(self, entity: Entity, draft: ToolDraft, terse: bool) -> tuple[str, str]:
        """Name and description of a tool, in phrases that its keys choose."""
        phrases = yaml_table(_PHRASES)[self.name]
        verb_key = draft.verb_key if draft.text_key else (self.name,)
        verb = _choose(phrases["verbs"], terse, entity.name, *verb_key)
        text_key = draft.text_key or (f"{self.name} told",)
        words = {
            "a": a(entity.words),
            "e": entity.words,
            "es": plural(entity.words),
            "l": entity.label.words,
            "o": entity.owner.words if entity.owner else "",
            "p": entity.application.replace("_", " "),
        }
        text = _choose(phrases["descriptions"], terse, entity.name, *text_key)
        noun = plural(entity.name) if phrases.get("plural") else entity.name
        return f"{verb}_{noun}{draft.suffix}", text.format(**words, **draft.words)


class FieldOperation(Operation):
    """An operation with one tool for each field that fits."""

    joint: ClassVar[str] = "_"
    """Between entity and field in a tool's name."""
    text: ClassVar[str]
    """Key of the descriptions."""
    verb_by_field: ClassVar[bool] = True

    def drafts(self, entity: Entity, terse: bool) -> Iterator[ToolDraft]:
        """One tool per field that fits."""
        for each in entity.fields[1:]:
            if self.fits(entity, each, terse):
                properties, required, binding = self.arguments(entity, each, terse)
                yield ToolDraft(
                    properties,
                    required,
                    f"{self.joint}{each.name}",
                    {"field": each.name, **binding},
                    {"f": each.words},
                    (each.name,) if self.verb_by_field else (),
                    (each.name, self.text),
                )

    def fits(self, entity: Entity, field: Field, terse: bool) -> bool:
        """Whether there is a tool for the field."""
        raise NotImplementedError

    def arguments(
        self, entity: Entity, field: Field, terse: bool
    ) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
        """The arguments, the required ones, and more of the binding."""
        raise NotImplementedError

    def finish(self, tool: ToolSpec, view: TaskView, at: Subject) -> PlannedCall | None:
        """The plan for the tool's field."""
        return self.plan(tool, view, at, entities()[tool.entity].field(tool.binding["field"]))

    def plan(self, tool: ToolSpec, view: TaskView, at: Subject, field: Field) -> PlannedCall | None:
        """The call of `end` for the tool's field."""
        raise NotImplementedError


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


def _choose(options: Sequence[str], terse: bool, *key: object) -> str:
    """One of some phrases, always the same for the same key; the first if terse."""
    return options[0] if terse else options[number(*key) % len(options)]


def key_schema(entity: Entity, terse: bool) -> dict[str, Any]:
    """The schema of an id."""
    if terse:
        return {"type": "string"}
    description = f"Id of the {entity.words}, such as {entity.prefix}-1234."
    return {"type": "string", "pattern": f"^{entity.prefix}-[0-9]+$", "description": description}


def ids(terse: bool, *owners: Entity | None) -> dict[str, Any]:
    """The arguments for the ids of these entities."""
    return {one.id_name: key_schema(one, terse) for one in owners if one}


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
