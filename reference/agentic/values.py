"""Kinds of field values: their schemas, drawn values, and wording."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from reference.agentic.domain import Field
from reference.agentic.texts import words

Json = Any
_DAY: Final = date(2026, 1, 1)


@dataclass(frozen=True, slots=True)
class ValueKind:
    """How values of a kind are declared, drawn and worded."""

    schema: Callable[[Field], dict[str, Any]]
    draw: Callable[[Field, random.Random], Json]
    say: Callable[[Json], str] = str
    nested: bool = False
    numeric: bool = False
    choice: bool = False
    """Whether the values are a short list of words, so that naming one proves little."""


def schema_of(field: Field, terse: bool = False) -> dict[str, Any]:
    """The JSON schema of the field's values; `terse` keeps only type and choices."""
    made = kind_of(field).schema(field)
    if terse:
        return {key: made[key] for key in ("type", "enum", "items", "properties") if key in made}
    unit = field.given[2] if kind_of(field).numeric and len(field.given) > 2 else ""
    return {**made, "description": f"The {field.words}{f', in {unit}' if unit else ''}."}


def kind_of(field: Field) -> ValueKind:
    """The kind of the field's values."""
    return VALUE_KINDS[field.kind]


def plain(field: Field, terse: bool) -> bool:
    """Whether a value is one word or number; if terse, also worded as it is written."""
    return not kind_of(field).nested and not (terse and field.kind == "bool")


def draw_value(field: Field, draw: random.Random) -> Json:
    """A drawn value of the field."""
    return kind_of(field).draw(field, draw)


def say_value(field: Field, value: Json) -> str:
    """The value in a person's words; plain values as in JSON."""
    return "none" if value is None else kind_of(field).say(value)


def _bounds(field: Field) -> tuple[float, float]:
    return float(field.given[0]), float(field.given[1])


def _decimal(places: int) -> Callable[[Field, random.Random], float]:
    def draw(field: Field, chance: random.Random) -> float:
        low, high = _bounds(field)
        return round(chance.uniform(low, high), places)

    return draw


def _number(field: Field) -> dict[str, Any]:
    low, high = _bounds(field)
    return {"type": "number", "minimum": low, "maximum": high}


def _whole(field: Field) -> dict[str, Any]:
    return {"type": "integer", "minimum": int(field.given[0]), "maximum": int(field.given[1])}


def _plain(kind: str = "string", **more: Any) -> Callable[[Field], dict[str, Any]]:
    return lambda _: {"type": kind, **more}


def _object(**kinds: dict[str, Any]) -> Callable[[Field], dict[str, Any]]:
    made = {"type": "object", "properties": kinds, "required": list(kinds)}
    return lambda _: {**made, "additionalProperties": False}


def _tags(field: Field) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "enum": list(field.given)}, "maxItems": 4}


def _some(field: Field, draw: random.Random) -> list[str]:
    return sorted(draw.sample(field.given, draw.randint(1, len(field.given) - 1)))


def _code(field: Field, draw: random.Random) -> str:
    return f"{field.given[0]}{draw.randint(10, 99)}{draw.choice('ABCDEFGHKLMNPRSTUVWX')}"


def _date(_: Field, draw: random.Random) -> str:
    return (_DAY + timedelta(days=draw.randrange(365))).isoformat()


def _span(_: Field, draw: random.Random) -> dict[str, str]:
    start = _DAY + timedelta(days=draw.randrange(330))
    end = start + timedelta(draw.randint(1, 30))
    return {"start": start.isoformat(), "end": end.isoformat()}


def _address(_: Field, draw: random.Random) -> dict[str, str]:
    street = f"{draw.randint(1, 99)} {draw.choice(words('street'))} Street"
    return {"street": street, "city": draw.choice(words("city"))}


def _geo(_: Field, draw: random.Random) -> dict[str, float]:
    return {"lat": round(draw.uniform(-60, 60), 3), "lon": round(draw.uniform(-180, 180), 3)}


def _email(_: Field, draw: random.Random) -> str:
    return f"{draw.choice(words('first')).lower()}{draw.randint(1, 99)}@example.org"


def _joined(value: Mapping[str, Any]) -> str:
    return ", ".join(map(str, value.values()))


_ENUM = ValueKind(
    lambda field: {"type": "string", "enum": list(field.given)},
    lambda field, draw: draw.choice(field.given),
    choice=True,
)
_LATITUDE = {"type": "number", "minimum": -90.0, "maximum": 90.0}
_LONGITUDE = {"type": "number", "minimum": -180.0, "maximum": 180.0}
VALUE_KINDS: Final[Mapping[str, ValueKind]] = {
    "person": ValueKind(
        _plain(), lambda _, draw: f"{draw.choice(words('first'))} {draw.choice(words('last'))}"
    ),
    "company": ValueKind(
        _plain(), lambda _, draw: f"{draw.choice(words('last'))} {draw.choice(words('firm'))}"
    ),
    "title": ValueKind(
        _plain(minLength=2),
        lambda field, draw: f"{draw.choice(words('title'))} {draw.choice(field.given)}",
    ),
    "city": ValueKind(_plain(), lambda _, draw: draw.choice(words("city"))),
    "code": ValueKind(
        lambda field: {"type": "string", "pattern": f"^{field.given[0]}[0-9]+[A-Z]$"}, _code
    ),
    "email": ValueKind(_plain(format="email"), _email),
    "phone": ValueKind(_plain(format="phone"), lambda _, draw: f"555-{draw.randint(1000, 9999)}"),
    "text": ValueKind(_plain(maxLength=200), lambda _, draw: draw.choice(words("text"))),
    "date": ValueKind(_plain(format="date"), _date),
    "time": ValueKind(
        _plain(format="time"),
        lambda _, draw: f"{draw.randint(6, 21):02}:{draw.choice(['00', '15', '30', '45'])}",
    ),
    "enum": _ENUM,
    "bool": ValueKind(
        _plain("boolean"),
        lambda _, draw: draw.random() < 0.5,
        lambda value: "yes" if value else "no",
        choice=True,
    ),
    "money": ValueKind(_number, _decimal(2), numeric=True),
    "float": ValueKind(_number, _decimal(2), numeric=True),
    "int": ValueKind(
        _whole,
        lambda field, draw: draw.randint(int(field.given[0]), int(field.given[1])),
        numeric=True,
    ),
    "tags": ValueKind(_tags, _some, ", ".join, nested=True, choice=True),
    "address": ValueKind(
        _object(street={"type": "string"}, city={"type": "string"}), _address, _joined, nested=True
    ),
    "span": ValueKind(
        _object(
            start={"type": "string", "format": "date"}, end={"type": "string", "format": "date"}
        ),
        _span,
        lambda value: f"{value['start']} to {value['end']}",
        nested=True,
    ),
    "geo": ValueKind(_object(lat=_LATITUDE, lon=_LONGITUDE), _geo, _joined, nested=True),
}
