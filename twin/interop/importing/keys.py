"""The keys of a configuration, taken one by one, so that none is passed over in silence.

A family takes every key that it understands. The others change nothing that the twin counts
(`harmless_keys.yaml`), or are problems. A key that is null counts as absent, as in `transformers`.

Keys of a foreign format that no field of a scenario takes are in a YAML file per format, by the
effect of leaving them out: `prefixes` and `harmless` change nothing that is counted, `uncounted`
has what is counted instead, `refused` the reason why no field expresses them. `synonyms` are other
words for a key that readers know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from twin.errors import Origin, Problem, UsageError
from twin.loading.files import display, read_data, read_text
from twin.loading.tree import Branch, Leaf, nearest, plain
from twin.loading.yaml_text import Locate, read_yaml, split_lines


@dataclass(frozen=True, slots=True)
class Known:
    """The keys; reasons by key."""

    prefixes: tuple[str, ...] = ()
    harmless: frozenset[str] = frozenset()
    uncounted: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    synonyms: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def is_harmless(self, name: str) -> bool:
        """Whether leaving the key out changes nothing that is counted."""
        return name in self.harmless or name.startswith(self.prefixes)

    @property
    def names(self) -> frozenset[str]:
        """All of them but prefixes, for spelling."""
        return self.harmless | self.uncounted.keys() | self.refused.keys()


@dataclass(frozen=True, slots=True)
class Tally:
    """How many keys of a file were read into fields, change nothing, or are left out and told."""

    read: int = 0
    harmless: int = 0
    left_out: int = 0

    @property
    def words(self) -> str:
        """The three counts in a sentence."""
        return (
            f"{self.read:,} keys are read, {self.harmless:,} change nothing that is counted, "
            f"{self.left_out:,} are left out."
        )

    def besides(self, keys: Tally) -> Tally:
        """With those of keys that came to no argument; the others are counted as arguments."""
        harmless, left_out = self.harmless + keys.harmless, self.left_out + keys.left_out
        return Tally(self.read, harmless, left_out)


@cache
def known_of(path: Path) -> Known:
    """The keys of a file."""
    data = read_data(path)
    harmless = frozenset(name for group in data.get("harmless", {}).values() for name in group)
    uncounted, refused = (
        {name: reason for reason, names in data.get(key, {}).items() for name in names}
        for key in ("uncounted", "refused")
    )
    prefixes, synonyms = tuple(data.get("prefixes", ())), data.get("synonyms", {})
    return Known(prefixes, harmless, uncounted, refused, synonyms)


_LONGEST: Final = 60
"""Of a value that a remark shows."""
HARMLESS: Final = Path(__file__).with_name("harmless_keys.yaml")
"""Keys of Hugging Face configurations that change neither weights nor the work of matrices."""
MOST_LAYERS: Final = 10_000
"""Layers that a configuration may have: five times what a scenario may."""
MOST: Final = 10**12
"""The most of anything else: a count of parameters."""


@dataclass(slots=True)
class Keys:
    """The keys of one configuration, with the problems and warnings that taking them brought."""

    tree: Branch
    known: Known = field(default_factory=Known)
    strict: bool = True
    """Refuse what nobody knows, instead of telling it."""
    taken: set[str] = field(default_factory=set[str])
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[str] = field(default_factory=list[str])
    """What the result leaves out or assumes, as sentences."""
    left_out: list[str] = field(default_factory=list[str])
    """What the real model has beside the result."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default where it is absent or null."""
        key = self.written(key)
        self.taken.add(key)
        child = self.tree.children.get(key)
        value = None if child is None else plain(child.node)
        return default if value is None else value

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least`; 1, after a problem, where it is none."""
        value = alike(self.get(key, default))
        if value is None:
            self.refuse(key, f"the configuration has no `{key}`", code="TW011")
        elif not isinstance(value, int) or isinstance(value, bool):
            self.refuse(key, f"`{key}` must be a whole number", code="TW014")
        elif value < least:
            self.refuse(key, f"`{key}` must be at least {least}", code="TW015")
        elif value > (most := MOST_LAYERS if "layers" in key else MOST):
            self.refuse(key, f"`{key}` must be at most {most:,}", code="TW015")
        else:
            return value
        return 1

    def number(self, key: str, default: float) -> float:
        """A number, whole or not; its bounds are the spec's."""
        value = self.get(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        self.refuse(key, f"`{key}` must be a number", code="TW014")
        return default

    def section(self, key: str) -> dict[str, Any]:
        """What stands below a key, without what is null; empty where the key is absent."""
        value = self.get(key, {})
        if isinstance(value, dict):
            return {
                name: held
                for name, held in cast("dict[str, Any]", value).items()
                if held is not None
            }
        self.refuse(key, f"`{key}` must be an object", code="TW014")
        return {}

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"`{key}` must be true or false", code="TW014")
        return value is True

    def texts(self, key: str) -> set[str]:
        """The items of a list, as text; none where there is no list."""
        value = self.get(key, [])
        if not isinstance(value, list):
            self.refuse(key, f"`{key}` must be a list", code="TW014")
            return set()
        return {str(item) for item in cast("list[object]", value)}

    def numbers(self, key: str, count: int) -> list[Any]:
        """A list of so many positive numbers; ones, after a problem, where it is none."""
        value = self.get(key, [])
        if isinstance(value, list):
            found = cast("list[Any]", value)
            if len(found) == count and all(isinstance(n, int | float) and n > 0 for n in found):
                return found
        self.refuse(key, f"`{key}` must be a list of {count} positive numbers", code="TW014")
        return [1] * count

    def must_be(self, key: str, *allowed: Any, why: str) -> None:
        """Refuse any value but these, for a reason; absent is allowed."""
        value = alike(self.get(key, allowed[0]))
        if value not in allowed:
            self.refuse(key, f"`{key}: {value}` cannot be expressed: {why}")

    def refuse(self, key: str, message: str, fix: str = "", code: str = "TW042") -> None:
        """Note a problem at a key, or at the top where it is absent."""
        self.problems.append(Problem(code, key, message, fix, self.place(key)))

    def written(self, key: str) -> str:
        """A key as this configuration writes it, which may be another word for it."""
        words = (key, *self.known.synonyms.get(key, ()))
        return next((word for word in words if word in self.tree.children), key)

    def place(self, key: str) -> Origin:
        """Where a key stands, or the top where it is absent."""
        child = self.tree.children.get(self.written(key))
        return child.key if child else self.tree.origin

    def finish(self) -> Tally:
        """Refuse, or tell by name, what nobody took."""
        counted = dict.fromkeys(("read", "harmless", "left_out"), 0)
        for key, child in self.tree.children.items():
            value = plain(child.node)
            off = value is None or (not self.strict and value in (False, "", -1, [], {}))
            if key in self.taken or off or self.known.is_harmless(key):
                counted["read" if key in self.taken else "harmless"] += 1
                continue
            counted["left_out"] += 1
            self._tell(key, f"`{key}: {shown(value)}`")
        return Tally(**counted)

    def _tell(self, key: str, written: str) -> None:
        near = nearest(key, self.known.names | self.taken)
        meant = f"did you mean `{near}`?" if near else ""
        if key in self.known.refused:
            self.refuse(key, f"{written} cannot be expressed: {self.known.refused[key]}")
        elif key in self.known.uncounted:
            self.warnings.append(f"{written}: {self.known.uncounted[key]}.")
        elif self.strict:
            message = f"twin does not know what `{key}` changes"
            fix = "if it changes neither weights nor matrix products, import a copy without it"
            self.refuse(key, message, meant or fix, code="TW043")
        else:
            self.warnings.append(f"{written} is unknown here, and is left out. {meant}".rstrip())


def alike(value: Any) -> Any:
    """The one value of a list that has the same for every layer; other values as they are."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return items[0] if items and all(item == items[0] for item in items) else items
    return value


def shown(value: Any) -> str:
    """A value on part of a line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def read_keys(path: Path) -> Keys:
    """The keys of a JSON file. Raises `UsageError` where it is none."""
    return keys_of(read_text(path), display(path))


def keys_of(text: str, name: str) -> Keys:
    """The keys of a JSON text, which problems call `name`. Raises `UsageError` where it is none."""
    # Tabs are space to JSON and an error to YAML, of which JSON is a part.
    text = text.replace("\t", " ")
    lines = split_lines(text)

    def locate(line: int, column: int, width: int) -> Origin:
        shown = lines[line] if line < len(lines) else ""
        return Origin(name, line + 1, column + 1, shown, width)

    _must_be_json(text, locate)
    tree, problems = read_yaml(text, locate)
    if problems:
        raise UsageError(problems)
    if not isinstance(tree, Branch):
        message = f"`{name}` holds no configuration: it must be one JSON object"
        raise UsageError([Problem("TW041", "", message, "", locate(0, 0, 1))])
    return Keys(tree, known_of(HARMLESS))


def _must_be_json(text: str, locate: Locate) -> None:
    """Refuse what is YAML at best, in the words of JSON. What is too deep or too long is left to
    the reader of the tree."""
    try:
        json.loads(text, parse_int=str)
    except json.JSONDecodeError as error:
        before = split_lines(text[: error.pos])
        place = locate(len(before) - 1, len(before[-1]), 1)
        message = f"not JSON: {error.msg[0].lower()}{error.msg[1:]}"
        raise UsageError([Problem("TW002", "", message, "", place)]) from None
    except RecursionError:
        return


def model_type(keys: Keys) -> tuple[str, Origin]:
    """The family that a configuration says it is of, and where."""
    leaf = keys.tree.leaf("model_type")
    if isinstance(leaf, Leaf) and isinstance(leaf.value, str):
        return leaf.value, leaf.origin
    return "", keys.tree.origin
