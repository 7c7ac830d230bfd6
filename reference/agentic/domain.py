"""Synthetic domains: category -> application -> entities with fields.

Kimi K2 evolves its synthetic tools the same way (arXiv:2507.20534, section 3.1.1). A file of
`domains/` is a category; an application has two entities, and the first owns the second. Kinds of
field values have their schemas in `values.yaml`. The rows of a world are never changed in place: a
write returns new tables.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from reference.agentic.chance import drawn
from reference.files import yaml_table
from twin.errors import Problem, ScenarioError

_FOLDER = Path(__file__).parent


def table(name: str) -> Any:
    """The values of `NAME.yaml` in this folder."""
    return yaml_table(_FOLDER / f"{name}.yaml")


def words(name: str) -> tuple[str, ...]:
    """A word list of `words.yaml`."""
    return tuple(table("words")[name])


DOMAINS: Final = Path(__file__).with_name("domains")
_FIELD: Final = re.compile(r"(?P<name>\w+):(?P<kind>\w+)(?:\((?P<given>[^)]*)\))?(?P<fixed>=?)")
_WORD: Final = re.compile(r">\w+|\w+:\w+(?:\([^)]*\))?=?")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an entity; `given` are the numbers or words of its kind."""

    name: str
    kind: str
    given: tuple[str, ...] = ()
    fixed: bool = False
    """Whether no tool changes it."""

    @property
    def words(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of rows; the first field is the label of a row."""

    name: str
    prefix: str
    fields: tuple[Field, ...]
    parent: str | None
    application: str
    category: str

    @property
    def words(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")

    @property
    def id_name(self) -> str:
        """The name of its ids as argument and column."""
        return f"{self.name}_id"

    @property
    def label(self) -> Field:
        """The label, unique in a world."""
        return self.fields[0]

    @property
    def owner(self) -> Entity | None:
        """The entity that owns this one."""
        return entities()[self.parent] if self.parent else None

    def field(self, name: str) -> Field:
        """The field of this name."""
        return next(field for field in self.fields if field.name == name)


@cache
def entities(folder: Path = DOMAINS) -> Mapping[str, Entity]:
    """All entities by name, in the order of the files. Raises ScenarioError (TW560) for a line that
    cannot be read, or a repeated name."""
    made: list[Entity] = []
    for path in sorted(folder.glob("*.yaml")):
        for application, lines in yaml_table(path).items():
            made += [_entity(name, line, application, path) for name, line in lines.items()]
    by_name = {entity.name: entity for entity in made}
    counts = Counter(name for entity in made for name in (entity.name, entity.prefix))
    for entity in made:
        if counts[entity.name] > 1 or counts[entity.prefix] > 1:
            raise _wrong(entity.category, entity.name, "its name or prefix is used twice")
        if entity.parent is not None and entity.parent not in by_name:
            message = f"its owner `{entity.parent}` is no entity"
            raise _wrong(entity.category, entity.name, message)
    return by_name


def children_of(entity: Entity) -> list[Entity]:
    """The entities that this entity owns."""
    return [child for child in entities().values() if child.parent == entity.name]


def _entity(name: str, line: str, application: str, path: Path) -> Entity:
    prefix, _, rest = line.partition(" ")
    fields: list[Field] = []
    parent = None
    if _WORD.sub("", rest).strip():
        raise _wrong(path.stem, name, f"cannot read `{_WORD.sub('', rest).strip()}`")
    for word in _WORD.findall(rest):
        if word.startswith(">"):
            parent = word[1:]
            continue
        match = _FIELD.fullmatch(word)
        assert match is not None
        given = tuple(match["given"].split(",")) if match["given"] else ()
        fields.append(Field(match["name"], match["kind"], given, bool(match["fixed"])))
    if not fields:
        raise _wrong(path.stem, name, "it has no field")
    return Entity(name, prefix, tuple(fields), parent, application, path.stem)


def _wrong(category: str, name: str, message: str) -> ScenarioError:
    fix = "write `NAME: PREFIX FIELD:KIND(...) ... >PARENT`"
    return ScenarioError([Problem("TW560", f"domains.{category}.{name}", message, fix)])


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


Row = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Row]]
"""Rows by entity and id."""


class Refused(Exception):  # noqa: N818  a tool's answer, not a fault of ours
    """A call that a tool cannot do; the model reads the text."""


def create_tables(names: list[str], rows: int, digits: int, seed: int) -> dict[str, dict[str, Row]]:
    """The rows of these entities and their owners, drawn from the seed: values that nobody can
    guess, ids with `digits` digits."""
    wanted: list[str] = []
    for name in names:
        parent = entities()[name].parent
        wanted += [parent, name] if parent else [name]
    made: dict[str, dict[str, Row]] = {}
    for name in dict.fromkeys(wanted):
        made[name] = _rows(entities()[name], made, rows, digits, seed)
    return made


def _rows(
    entity: Entity, made: Mapping[str, Mapping[str, Row]], rows: int, digits: int, seed: int
) -> dict[str, Row]:
    draw = drawn("rows", seed, entity.name)
    # Fewer owners, so that each owns some rows.
    count = rows if entity.parent else max(3, rows // 2)
    numbers = draw.sample(range(10 ** (digits - 1), 10**digits), count)
    drawn_rows: dict[str, Row] = {}
    labels: set[Any] = set()
    for number in numbers:
        row = {field.name: draw_value(field, draw) for field in entity.fields}
        while row[entity.label.name] in labels:
            row[entity.label.name] = draw_value(entity.label, draw)
        labels.add(row[entity.label.name])
        if entity.parent:
            owner = entities()[entity.parent]
            row[owner.id_name] = draw.choice(list(made[entity.parent]))
        drawn_rows[f"{entity.prefix}-{number}"] = row
    return drawn_rows


def row_of(tables: Tables, kind: str, key: Any) -> Row:
    """A row. Raises Refused if it does not exist."""
    row = tables.get(kind, {}).get(key) if isinstance(key, str) else None
    if row is None:
        raise Refused(f"there is no {entities()[kind].words} {key!r}")
    return row


def put(tables: Tables, kind: str, key: str, row: Row) -> Tables:
    """The rows with this row, new or changed."""
    return {**tables, kind: {**tables.get(kind, {}), key: row}}


def without(tables: Tables, kind: str, key: str) -> Tables:
    """The rows without this row."""
    return {**tables, kind: {at: row for at, row in tables[kind].items() if at != key}}


def new_id(tables: Tables, kind: str, row: Row) -> str:
    """The id of a new row. It follows from the row, so the order of calls does not matter; it has
    as many digits as the others."""
    taken = tables.get(kind, {})
    prefix = entities()[kind].prefix
    digits = max((len(key.rpartition("-")[2]) for key in taken), default=4)
    span = 9 * 10 ** (digits - 1)
    number = zlib.crc32(repr(sorted(row.items())).encode())
    while (key := f"{prefix}-{10 ** (digits - 1) + number % span}") in taken:
        number += 1
    return key
