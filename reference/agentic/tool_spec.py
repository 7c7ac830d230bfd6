"""A tool: its declaration, its place in the catalog, and its effect on a world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from reference.dialog import declared

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
