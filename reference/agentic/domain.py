"""Synthetic domains: category -> application -> entities with fields.

Kimi K2 evolves its synthetic tools the same way (arXiv:2507.20534, section 3.1.1). A file of
`domains/` is a category; an application has two entities, and the first owns the second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from reference.yaml_tables import yaml_table
from twin.errors import Problem, ScenarioError

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
