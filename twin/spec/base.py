"""The base of every section that a planner writes: frozen pydantic models with typed fields.

Inside the program every quantity is an SI float (bytes, seconds, FLOP/s, bytes/s) or a whole count;
text with units exists only at the boundary, where the aliases below read it, and where
`model_dump(mode="json")` writes it back so that it loads to the same value. Plain numbers and flags
are strict: `"16"` is no number and `1` is no flag.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    WithJsonSchema,
)

from twin import units


class Spec(BaseModel):
    """A frozen section of a scenario; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _reads(dimension: units.Dimension) -> BeforeValidator:
    def read(value: Any) -> float:
        return units.parse(value, dimension)

    return BeforeValidator(read)


def _writes(dimension: units.Dimension) -> PlainSerializer:
    def write(value: float) -> str:
        return units.format_quantity(value, dimension)

    return PlainSerializer(write, return_type=str, when_used="json")


def _schema(dimension: units.Dimension) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": f"a quantity in {dimension}"})


Bytes = Annotated[float, _reads("bytes"), _writes("bytes"), _schema("bytes")]
"""Bytes, written `80GiB` or `85.5GB`."""
BytesPerSecond = Annotated[
    float,
    _reads("bytes_per_s"),
    _writes("bytes_per_s"),
    _schema("bytes_per_s"),
    Field(gt=0),
]
"""Bytes per second in one direction, written `400Gbps` or `3.35TB/s`; more than none."""
FlopPerSecond = Annotated[
    float,
    _reads("flop_per_s"),
    _writes("flop_per_s"),
    _schema("flop_per_s"),
    Field(gt=0),
]
"""Floating-point operations per second, written `989TFLOP/s`; more than none."""
Seconds = Annotated[float, _reads("seconds"), _writes("seconds"), _schema("seconds")]
"""Seconds, written `2.5us` or `45d`."""
Dollars = Annotated[float, _reads("usd"), _writes("usd"), _schema("usd")]
"""US dollars, written `2.0USD`."""
Tokens = Annotated[int, _reads("tokens"), _writes("tokens"), _schema("tokens"), Field(gt=0)]
"""Tokens, at least one: `4096tok`, or behind a prefix `15.5T`, since the field has one unit."""

Count = Annotated[int, Strict(), Field(gt=0)]
"""How many, at least one."""
Whole = Annotated[int, Strict(), Field(ge=0)]
"""How many, perhaps none."""
Share = Annotated[float, Strict(), Field(gt=0, le=1)]
"""A part of a whole, above 0 and at most 1."""
Flag = Annotated[bool, Strict()]
"""`true` or `false`."""
