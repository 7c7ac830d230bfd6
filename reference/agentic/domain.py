"""The grammar of synthetic domains: category -> application -> kinds of things with fields.

Kimi K2 evolves its synthetic tools the same way (arXiv:2507.20534, section 3.1.1). A file of
`domains/` is a category; an application has two kinds, of which the second belongs to the first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import yaml

from twin.errors import Problem, ScenarioError

DOMAINS: Final = Path(__file__).with_name("domains")
_FIELD: Final = re.compile(r"(?P<name>\w+):(?P<kind>\w+)(?:\((?P<given>[^)]*)\))?(?P<fixed>=?)")
_WORD: Final = re.compile(r">\w+|\w+:\w+(?:\([^)]*\))?=?")


@dataclass(frozen=True, slots=True)
class Field:
    """A value that things of a kind have; `given` are the numbers or words of its kind."""

    name: str
    kind: str
    given: tuple[str, ...] = ()
    fixed: bool = False
    """Never changed by a tool."""

    @property
    def words(self) -> str:
        """The name as people say it."""
        return self.name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of things; the first field is the name that one is known by."""

    name: str
    prefix: str
    fields: tuple[Field, ...]
    parent: str | None
    application: str
    category: str

    @property
    def words(self) -> str:
        """The name as people say it."""
        return self.name.replace("_", " ")

    @property
    def id_name(self) -> str:
        """The argument and column of its ids."""
        return f"{self.name}_id"

    @property
    def label(self) -> Field:
        """What it is known by: no two of a world share it."""
        return self.fields[0]

    def field(self, name: str) -> Field:
        """One field by its name."""
        return next(one for one in self.fields if one.name == name)


@cache
def entities(folder: Path = DOMAINS) -> Mapping[str, Entity]:
    """All kinds of all categories by name, in the order of the files. Raises ScenarioError (TW560)
    for a line that cannot be read, or a name that stands twice."""
    found: list[Entity] = []
    for path in sorted(folder.glob("*.yaml")):
        for application, kinds in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            found += [_entity(name, kinds[name], application, path) for name in kinds]
    counts = Counter(one.name for one in found) + Counter(one.prefix for one in found)
    for one in found:
        if counts[one.name] > 1 or counts[one.prefix] > 1:
            raise _wrong(one.category, one.name, "its name or prefix stands twice")
        if one.parent is not None and all(one.parent != other.name for other in found):
            raise _wrong(one.category, one.name, f"it belongs to `{one.parent}`, which is no kind")
    return {one.name: one for one in found}


def children_of(entity: Entity) -> list[Entity]:
    """The kinds that belong to this one."""
    return [one for one in entities().values() if one.parent == entity.name]


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
