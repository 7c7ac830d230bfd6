"""The base of every section a planner writes: frozen pydantic models with unit-aware fields.

Inside the program every quantity is an SI float (bytes, seconds, FLOP/s, bytes/s); strings with units exist only at
the boundary, where `Quantity` parses them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from twin import units


class Spec(BaseModel):
    """A frozen section of a scenario; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _parser(dimension: units.Dimension) -> BeforeValidator:
    def parse(value: Any) -> float:
        return units.parse(value, dimension)

    return BeforeValidator(parse, json_schema_input_type=str)


Bytes = Annotated[float, _parser("bytes")]
"""Bytes, written `80GiB` or `85.5GB`."""
BytesPerSecond = Annotated[float, _parser("bytes_per_s")]
"""Bytes per second in one direction, written `400Gbps` or `3.35TB/s`."""
FlopPerSecond = Annotated[float, _parser("flop_per_s")]
"""Floating-point operations per second, written `989TFLOP/s`."""
Seconds = Annotated[float, _parser("seconds")]
"""Seconds, written `2.5us` or `45d`."""
Dollars = Annotated[float, _parser("usd")]
"""US dollars, written `2.0USD`."""
Tokens = Annotated[int, _parser("tokens")]
"""Tokens, written `4096tok`, or with a bare prefix, `15.5T`, since the field has one unit."""
