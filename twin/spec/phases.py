"""How long each phase of a run is, and when the run starts."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema, model_validator

from twin.errors import FieldError
from twin.spec.base import Spec, Tokens, Whole


def _as_date(written: Any) -> Any:
    if isinstance(written, date):
        return written
    try:
        return date.fromisoformat(written)
    except (TypeError, ValueError):
        message = "a start is a day of the calendar"
        raise FieldError("TW460", message, "write year, month and day: 2026-01-05") from None


Day = Annotated[
    date,
    BeforeValidator(_as_date),
    PlainSerializer(date.isoformat, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date", "examples": ["2026-01-05"]}),
]
"""A day of the calendar, written `2026-01-05`."""


class LengthSpec(Spec):
    """How long a phase is, in one of three ways: its tokens, its steps, or the tokens of the whole
    run when it ends."""

    name: str
    """what reports call the phase"""
    tokens: Tokens | None = None
    """tokens of the phase"""
    steps: Whole | None = None
    """steps of the phase; 0: nothing is trained, and its layout is checked all the same"""
    until: Tokens | None = None
    """tokens of this phase and all before it, together"""

    @model_validator(mode="after")
    def _say_it_once(self) -> LengthSpec:
        written = [key for key in ("tokens", "steps", "until") if getattr(self, key) is not None]
        if len(written) != 1:
            said = " and ".join(f"`{key}`" for key in written) or "nothing"
            message = f"the phase `{self.name}` says how long it is with {said}"
            raise FieldError("TW461", message, "write one of `tokens`, `steps`, `until`")
        return self

    def length(self, before: int, batch: int) -> int:
        """Tokens of the phase, after so many `before` it, in steps of a `batch`; not positive where
        `until` lies before its beginning."""
        if self.steps is not None:
            return self.steps * batch
        if self.until is not None:
            return self.until - before
        assert self.tokens is not None, "a phase says how long it is"
        return self.tokens
