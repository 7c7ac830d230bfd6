"""What a model is told of its call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ended = Literal["done", "unknown", "forbidden", "limited", "invalid", "timeout", "failed"]
"""It was done, or why not: no such tool, not on the list, too often, arguments, too long, an error
of the tool."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the model sees of its call."""

    id: str
    ended: Ended
    content: str

    @property
    def ok(self) -> bool:
        """Whether the tool did what it was asked."""
        return self.ended == "done"
