"""Kinds of field values: their schemas (`values.yaml`), drawn values, and wording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from random import Random
from typing import Any, Final

from reference.agentic.domain import Field
from reference.agentic.texts import table, words

_DAY: Final = date(2026, 1, 1)


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The schema and the properties of a kind of values."""

    schema: Mapping[str, Any] | None = None
    """None: it follows from the field."""
    nested: bool = False
    numeric: bool = False
    choice: bool = False
    """Whether the values are a short list of words, so that naming one proves little."""


@cache
def _kinds() -> Mapping[str, ValueKind]:
    return {name: ValueKind(**row) for name, row in table("values").items()}


def kind_of(field: Field) -> ValueKind:
    """The kind of the field's values."""
    return _kinds()[field.kind]


def schema_of(field: Field, terse: bool = False) -> dict[str, Any]:
    """The JSON schema of the field's values; `terse` keeps only type and choices."""
    kind = kind_of(field)
    made = dict(kind.schema or _own_schema(field))
    if terse:
        return {key: made[key] for key in ("type", "enum", "items", "properties") if key in made}
    unit = field.given[2] if kind.numeric and len(field.given) > 2 else ""
    return {**made, "description": f"The {field.words}{f', in {unit}' if unit else ''}."}


def _own_schema(field: Field) -> dict[str, Any]:
    """The schema by the field's words or numbers."""
    if field.kind == "int":
        low, high = map(int, field.given[:2])
        return {"type": "integer", "minimum": low, "maximum": high}
    if kind_of(field).numeric:
        low, high = map(float, field.given[:2])
        return {"type": "number", "minimum": low, "maximum": high}
    if field.kind == "code":
        return {"type": "string", "pattern": f"^{field.given[0]}[0-9]+[A-Z]$"}
    choice = {"type": "string", "enum": list(field.given)}
    return choice if field.kind == "enum" else {"type": "array", "items": choice, "maxItems": 4}


def plain(field: Field, terse: bool) -> bool:
    """Whether a value is one word or number; if terse, also worded as it is written."""
    return not kind_of(field).nested and not (terse and field.kind == "bool")


def draw_value(field: Field, draw: Random) -> Any:
    """A drawn value of the field."""
    return _DRAWS[field.kind](field, draw)


def say_value(field: Field, value: Any) -> str:
    """The value in a person's words; plain values as in JSON."""
    return "none" if value is None else spoken(value, field.kind)


def spoken(value: Any, kind: str) -> str:
    """A value of a kind (or of none) in words."""
    if kind == "bool":
        return "yes" if value else "no"
    if kind == "tags":
        return ", ".join(value)
    if kind == "span":
        return f"{value['start']} to {value['end']}"
    return ", ".join(map(str, value.values())) if kind in ("address", "geo") else str(value)


def _decimal(field: Field, draw: Random) -> float:
    low, high = map(float, field.given[:2])
    return round(draw.uniform(low, high), 2)


def _name(first: str, second: str) -> Callable[[Field, Random], str]:
    return lambda _, draw: f"{draw.choice(words(first))} {draw.choice(words(second))}"


def _word(name: str) -> Callable[[Field, Random], str]:
    return lambda _, draw: draw.choice(words(name))


def _code(field: Field, draw: Random) -> str:
    return f"{field.given[0]}{draw.randint(10, 99)}{draw.choice('ABCDEFGHKLMNPRSTUVWX')}"


def _span(_: Field, draw: Random) -> dict[str, str]:
    start = _DAY + timedelta(days=draw.randrange(330))
    end = start + timedelta(draw.randint(1, 30))
    return {"start": start.isoformat(), "end": end.isoformat()}


def _address(_: Field, draw: Random) -> dict[str, str]:
    street = f"{draw.randint(1, 99)} {draw.choice(words('street'))} Street"
    return {"street": street, "city": draw.choice(words("city"))}


def _geo(_: Field, draw: Random) -> dict[str, float]:
    return {"lat": round(draw.uniform(-60, 60), 3), "lon": round(draw.uniform(-180, 180), 3)}


def _email(_: Field, draw: Random) -> str:
    return f"{draw.choice(words('first')).lower()}{draw.randint(1, 99)}@example.org"


def _time(_: Field, draw: Random) -> str:
    return f"{draw.randint(6, 21):02}:{draw.choice(['00', '15', '30', '45'])}"


def _tags(field: Field, draw: Random) -> list[str]:
    return sorted(draw.sample(field.given, draw.randint(1, len(field.given) - 1)))


_DRAWS: Final[Mapping[str, Callable[[Field, Random], Any]]] = {
    "person": _name("first", "last"),
    "company": _name("last", "firm"),
    "title": lambda field, draw: f"{draw.choice(words('title'))} {draw.choice(field.given)}",
    "city": _word("city"),
    "code": _code,
    "email": _email,
    "phone": lambda _, draw: f"555-{draw.randint(1000, 9999)}",
    "text": _word("text"),
    "date": lambda _, draw: (_DAY + timedelta(days=draw.randrange(365))).isoformat(),
    "time": _time,
    "enum": lambda field, draw: draw.choice(field.given),
    "bool": lambda _, draw: draw.random() < 0.5,
    "money": _decimal,
    "float": _decimal,
    "int": lambda field, draw: draw.randint(int(field.given[0]), int(field.given[1])),
    "tags": _tags,
    "address": _address,
    "span": _span,
    "geo": _geo,
}
