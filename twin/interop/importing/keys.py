"""The keys of a configuration, taken one by one, so that none is passed over in silence.

A family takes every key that it understands. The others change nothing that the twin counts
(`harmless_keys.yaml`), or are problems. A key that is null counts as absent, as in `transformers`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from twin.errors import Origin, Problem, UsageError
from twin.loading.files import display, read_data, read_text
from twin.loading.tree import Branch, Leaf, nearest, plain
from twin.loading.yaml_text import Locate, read_yaml, split_lines


@cache
def _harmless() -> frozenset[str]:
    """Keys that change neither weights nor the work of matrices (`harmless_keys.yaml`)."""
    groups = read_data(Path(__file__).with_name("harmless_keys.yaml")).values()
    return frozenset(name for group in groups for name in group)


@dataclass(slots=True)
class Keys:
    """The keys of one configuration, with the problems and warnings that taking them brought."""

    tree: Branch
    taken: set[str] = field(default_factory=set[str])
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[str] = field(default_factory=list[str])
    """What the result leaves out or assumes, as sentences."""
    left_out: list[str] = field(default_factory=list[str])
    """What the real model has beside the result."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default where it is absent or null."""
        self.taken.add(key)
        child = self.tree.children.get(key)
        value = None if child is None else plain(child.node)
        return default if value is None else value

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least`; 1, after a problem, where it is none."""
        value = self.get(key, default)
        if value is None:
            self.refuse(key, f"the configuration has no `{key}`", code="TW011")
        elif not isinstance(value, int) or isinstance(value, bool):
            self.refuse(key, f"`{key}` must be a whole number", code="TW014")
        elif value < least:
            self.refuse(key, f"`{key}` must be at least {least}", code="TW015")
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

    def must_be(self, key: str, *allowed: Any, why: str) -> None:
        """Refuse any value but these, for a reason; absent is allowed."""
        value = self.get(key, allowed[0])
        if value not in allowed:
            self.refuse(key, f"`{key}: {value}` cannot be expressed: {why}")

    def refuse(self, key: str, message: str, fix: str = "", code: str = "TW042") -> None:
        """Note a problem at a key, or at the top where it is absent."""
        child = self.tree.children.get(key)
        origin = child.key if child else self.tree.origin
        self.problems.append(Problem(code, key, message, fix, origin))

    def finish(self) -> None:
        """Refuse what nobody took."""
        known = _harmless() | self.taken
        for key, child in self.tree.children.items():
            if key in known or plain(child.node) is None:
                continue
            near = nearest(key, known)
            message = f"twin does not know what `{key}` changes"
            fix = "if it changes neither weights nor matrix products, import a copy without it"
            self.refuse(key, message, f"did you mean `{near}`?" if near else fix, code="TW043")


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
    return Keys(tree)


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
