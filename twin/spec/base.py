"""The base of every section that a planner writes: frozen pydantic models with typed fields.

Inside the program every quantity is an SI float (bytes, seconds, FLOP/s, bytes/s) or a whole count;
text with units exists only at the boundary, where the aliases below read it, and where
`model_dump(mode="json")` writes it back so that it loads to the same value. Plain numbers and flags
are strict: `"16"` is no number and `1` is no flag.

Every number is bounded, far outside of what anybody builds: a slip of many orders of magnitude is
told as what it is, and in the shipped scenarios no single one of them, at its bound, makes a step
longer than nanoseconds in 64 bits can count (292 years). Several together still may.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final

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
from twin.errors import FieldError


class Spec(BaseModel):
    """A frozen section of a scenario; unknown keys are errors. The docstring below a field is its
    description (`descriptions`), which is read when somebody asks: nobody who runs does. Validators
    are built at first use, so that of nested sections only the outermost has one."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def descriptions(section: type[BaseModel]) -> dict[str, str]:
    """The docstrings below the fields of a section, by field, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, BaseModel):
            found |= _docstrings(base.__module__).get(base.__qualname__, {})
    return {name: found.get(name, "") for name in section.model_fields}


@cache
def _docstrings(module: str) -> Mapping[str, dict[str, str]]:
    """The docstrings below fields in a module, by class and field."""
    source = inspect.getsource(sys.modules[module])
    classes = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ClassDef)]
    found: dict[str, dict[str, str]] = {}
    for one in classes:
        fields = found.setdefault(one.name, {})
        for field, below in pairwise(one.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    fields[name] = " ".join(text.split())
                case _:
                    pass
    return found


def _reads(dimension: units.Dimension, least: float, most: float) -> BeforeValidator:
    def read(value: Any) -> float:
        result = units.parse(value, dimension)
        if not least <= result <= most:
            side, bound = ("least", least) if result < least else ("most", most)
            shown = units.format_quantity(bound, dimension)
            raise FieldError("TW015", f"must be at {side} {shown}")
        return result

    return BeforeValidator(read)


def _writes(dimension: units.Dimension) -> PlainSerializer:
    def write(value: float) -> str:
        return units.format_quantity(value, dimension)

    return PlainSerializer(write, return_type=str, when_used="json")


def written_as(*dimensions: units.Dimension) -> WithJsonSchema:
    """What the JSON Schema says of a quantity of one of these dimensions: text with a unit."""
    nouns = " or ".join(units.noun(one) for one in dimensions)
    accepted = re.compile(units.pattern(*dimensions))
    known = (text for one in dimensions for text in units.examples(one))
    examples = [text for text in known if accepted.fullmatch(text)]
    return WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^{units.pattern(*dimensions)}$",
            "patternErrorMessage": f"write {nouns}, such as {examples[0]}",
            "examples": examples,
            "x-unit": nouns,
        }
    )


Bytes = Annotated[float, _reads("bytes", 0, 1e18), _writes("bytes"), written_as("bytes")]
"""Bytes, written `80GiB` or `85.5GB`; at most 1 EB."""
BytesPerSecond = Annotated[
    float,
    _reads("bytes_per_s", 1e5, 1e18),
    _writes("bytes_per_s"),
    written_as("bytes_per_s"),
]
"""Bytes per second in one direction, written `400Gbps` or `3.35TB/s`; 100 kB/s to 1 EB/s."""
FlopPerSecond = Annotated[
    float,
    _reads("flop_per_s", 1e9, 1e21),
    _writes("flop_per_s"),
    written_as("flop_per_s"),
]
"""Floating-point operations per second, written `989TFLOP/s`; 1 GFLOP/s to 1,000 EFLOP/s."""
Seconds = Annotated[float, _reads("seconds", 0, 1), _writes("seconds"), written_as("seconds")]
"""Seconds, written `2.5us`; latencies and launches, so at most 1 s."""
Duration = Annotated[float, _reads("seconds", 0, 86400), _writes("seconds"), written_as("seconds")]
"""Seconds of a phase, written `1.2s` or `5min`; at most a day."""
Span = Annotated[float, _reads("seconds", 1, 1e12), _writes("seconds"), written_as("seconds")]
"""Seconds of a long time, written `3h` or `5978d`; a second to 32,000 years."""
Dollars = Annotated[float, _reads("usd", 0, 1e6), _writes("usd"), written_as("usd")]
"""US dollars, written `2.0USD`; prices of one thing, so at most a million."""
Price = Annotated[float, _reads("usd", 0, 1e9), _writes("usd"), written_as("usd")]
"""US dollars for what is bought, a node or a rack, written `310kUSD`; at most a billion."""
DollarsPerKwh = Annotated[
    float, _reads("usd_per_kwh", 0, 100), _writes("usd_per_kwh"), written_as("usd_per_kwh")
]
"""US dollars per kilowatt-hour, written `0.08USD/kWh`; at most 100."""
GramsPerKwh = Annotated[
    float, _reads("grams_per_kwh", 0, 1e5), _writes("grams_per_kwh"), written_as("grams_per_kwh")
]
"""Grams of CO2e per kilowatt-hour, written `390g/kWh`; at most 100 kg."""
Watts = Annotated[float, _reads("watts", 0, 1e7), _writes("watts"), written_as("watts")]
"""Watts, written `700W` or `10.2kW`; at most 10 MW."""
Tokens = Annotated[int, _reads("tokens", 1, 10**18), _writes("tokens"), written_as("tokens")]
"""Tokens, at least one: `4096tok`, or behind a prefix `15.5T`, since the field has one unit."""

Count = Annotated[int, Strict(), Field(gt=0, le=10**9)]
"""How many, at least one."""
Whole = Annotated[int, Strict(), Field(ge=0, le=10**9)]
"""How many, perhaps none."""
Share = Annotated[float, Strict(), Field(ge=1e-3, le=1)]
"""A part of a whole, a thousandth to 1."""
Part = Annotated[float, Strict(), Field(ge=0, le=1)]
"""A part of a whole, perhaps none of it, 0 to 1."""
Ratio = Annotated[float, Strict(), Field(ge=1, le=1000)]
"""How many times more, at least 1."""
Flag = Annotated[bool, Strict()]
"""`true` or `false`."""
UNWRITTEN: Final = Field(exclude_if=lambda value: not value)
"""Put into `Annotated` of a field that came later: where it is null, false or empty, a scenario is
written, and hashed, as before there was the field."""
Later = Annotated[Flag, UNWRITTEN]
"""A flag that came later."""
Once = Annotated[Count, Field(exclude_if=lambda value: value == 1)]
"""A count that came later: 1 is not written."""
Exactly = BeforeValidator(lambda value: value if type(value) is int else None)
"""Put into `Annotated` beside a `Literal` of numbers, to which `true` and `1.0` would equal `1`."""
