"""A tool: how it is declared, where it belongs, and what it does to a world."""

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
    """What a call does to the world's rows; `unknown` of one that was imported."""
    operation: str = ""
    """Which operation runs it; none of one that was imported: it is declared, and only refuses."""
    binding: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the operation works on: `entity`, and words of its own."""

    @property
    def path(self) -> str:
        """Category, application and name."""
        return f"{self.category}/{self.application}/{self.name}"

    @property
    def entity(self) -> str:
        """The kind of things it works on; nothing where it was imported."""
        return str(self.binding.get("entity", ""))

    def declaration(self) -> dict[str, Any]:
        """As OpenAI's `tools` and Kimi K2's template have it."""
        return declared(self.name, self.description, self.parameters)

    def json(self) -> dict[str, Any]:
        """All of it as one JSON object; `ToolSpec(**...)` reads it."""
        return asdict(self)


def schema(
    properties: Mapping[str, Any], required: Sequence[str], terse: bool = False
) -> dict[str, Any]:
    """The schema of arguments that are an object; `terse` leaves out that others are refused."""
    made = {"type": "object", "properties": dict(properties), "required": list(required)}
    return made if terse else {**made, "additionalProperties": False}
