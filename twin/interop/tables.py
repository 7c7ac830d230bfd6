"""Keys of another program's files as fields of a scenario, by a table that serves both ways.

A table is a YAML file: `reads` has for each field of ours their key, how its value is written, and
what they take where it is absent; `renamed` their older keys; and the rest what
`twin.interop.importing.keys` says. A value is written as a `count`, a `flag` (true or false),
a `number`, as `tokens` or `sequences` (a count to them, with a unit to us), or as one of some
choices, by a mapping from theirs to ours. What takes more than one key is the format's module's.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from twin.errors import Origin, Problem, UsageError
from twin.interop.importing.keys import Keys, Known, known_of
from twin.loading.files import read_data
from twin.loading.tree import Branch, Child, Leaf, hint
from twin.loading.yaml_text import read_yaml
from twin.scenario import Scenario

Fields = dict[str, dict[str, Any]]
"""Fields of a scenario by section."""
_UNITS: Final = {"tokens": "tok", "sequences": "seq"}


@dataclass(frozen=True, slots=True)
class Row:
    """One field and their key."""

    field: str
    key: str
    how: str | Mapping[str, Any]
    default: Any = None


@dataclass(frozen=True, slots=True)
class Table:
    """All rows of a format, its older names, and what no field takes."""

    rows: tuple[Row, ...]
    renamed: Mapping[str, str]
    known: Known

    def keys_of(self, tree: Branch, more: Mapping[str, Child] | None = None) -> Keys:
        """The keys of a file by dotted path, those of `more` over them, by their newest names."""
        found = {
            self.renamed.get(key, key): child
            for key, child in flat(tree)
            if not key.rpartition(".")[2].startswith("_")  # classes, as Hydra names them
        }
        found |= {self.renamed.get(key, key): child for key, child in (more or {}).items()}
        return Keys(Branch(found, tree.origin), self.known, strict=False)

    def read(self, keys: Keys) -> Fields:
        """The fields that the rows give; those without value or default are absent."""
        found: Fields = {}
        for row in self.rows:
            value = _read(keys, row)
            if value is not None:
                section, _, name = row.field.partition(".")
                found.setdefault(section, {})[name] = value
        return found

    def write(self, scenario: Scenario) -> dict[str, Any]:
        """Their keys with the scenario's values; without those that they cannot say."""
        said = {row.key: _written(row, _field(scenario, row.field)) for row in self.rows}
        return {key: value for key, value in said.items() if value is not None}


@cache
def table_of(path: Path) -> Table:
    """The table of a file."""
    data = read_data(path)
    rows = tuple(Row(field, *written) for field, written in data["reads"].items())
    return Table(rows, data.get("renamed", {}), known_of(path))


def flat(tree: Branch, path: str = "") -> Iterator[tuple[str, Child]]:
    """Values below a mapping by dotted path; lists and empty mappings are values."""
    for key, child in tree.children.items():
        below = f"{path}.{key}" if path else key
        if isinstance(child.node, Branch) and child.node.children:
            yield from flat(child.node, below)
        else:
            yield below, child


def nested(flat_keys: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping of mappings whose dotted paths these are."""
    found: dict[str, Any] = {}
    for key, value in flat_keys.items():
        *sections, last = key.split(".")
        place = found
        for section in sections:
            place = cast("dict[str, Any]", place.setdefault(section, {}))
        place[last] = value
    return found


def _read(keys: Keys, row: Row) -> Any:
    if not isinstance(row.how, str):
        return choice(keys, row.key, row.how, row.default)
    if row.how == "flag":
        return keys.flag(row.key, row.default is True)
    if keys.get(row.key, row.default) is None:
        return None
    if row.how == "number":
        return keys.number(row.key, float(row.default or 0))
    count = keys.count(row.key, row.default, least=0 if row.default == 0 else 1)
    return f"{count}{_UNITS[row.how]}" if row.how in _UNITS else count


def choice(keys: Keys, key: str, choices: Mapping[str, Any], default: str | None) -> Any:
    """What one of their words means to us; that of the default, after a problem, where nobody
    knows it."""
    value = keys.get(key, default)
    if value is None:
        return None
    if str(value) not in choices:
        keys.refuse(key, f"`{key}: {value}` is not known", hint(str(value), choices), "TW016")
        value = default
    return choices.get(str(value))


def _field(scenario: Scenario, path: str) -> Any:
    value: Any = scenario
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _written(row: Row, value: Any) -> Any:
    if isinstance(row.how, str):
        return value
    plain = list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
    return next((theirs for theirs, ours in row.how.items() if ours == plain), None)


def finished(keys: Keys) -> None:
    """Raise `UsageError` with everything that is wrong with the keys."""
    if keys.problems:
        raise UsageError(keys.problems)


def ask(keys: Keys, key: str, message: str, option: str) -> None:
    """Ask for what a file leaves to whoever launches it."""
    keys.problems.append(
        Problem("TW011", option.split(maxsplit=1)[0], message, option, keys.place(key))
    )


def words_of(more: Iterable[str], option: str = "--with") -> list[str]:
    """The words of arguments as a shell splits them. Raises `UsageError` where a quote is open."""
    try:
        return [word for one in more for word in shlex.split(one)]
    except ValueError as error:
        fix = "close the quote, or write \\ before it"
        raise UsageError([Problem("TW014", option, str(error).lower(), fix)]) from None


def overrides(more: Sequence[str]) -> dict[str, Child]:
    """Keys that a command line sets: `--a.b value`, `--a.b=value`, `a.b=value` or Hydra's
    `+a.b=value`; a switch without value is true."""
    found: dict[str, Child] = {}
    words = words_of(more)
    while words:
        name, equals, value = words.pop(0).partition("=")
        key = name.lstrip("-+").replace("-", "_") if name.startswith("--") else name.lstrip("+")
        if not equals:
            follows = bool(words) and not words[0].startswith("--") and "=" not in words[0]
            value = words.pop(0) if follows and name.startswith("--") else "true"
        found[key] = _child(value, Origin("--with", 1, 1, f"{name}{equals}{value}", 1))
    return found


def _child(value: str, origin: Origin) -> Child:
    def here(line: int, column: int, width: int) -> Origin:  # noqa: ARG001
        return origin

    tree, _ = read_yaml(value, here) if value else (None, [])
    return Child(origin, Leaf(value, origin) if tree is None else tree)
