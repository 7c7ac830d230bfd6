"""`--set a.b=value` to a tree: the value is YAML, and every part of the argument has a position."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twin.errors import Origin, Problem, UsageError
from twin.loading.tree import Branch, Child, Leaf, Node
from twin.loading.yaml_text import read_yaml

_FLAG = "--set "
"""Shown before the argument, so that the caret stands under what was typed."""
_MAX_DEPTH = 100


def read_overrides(arguments: Sequence[str]) -> list[Branch]:
    """One tree per argument, in order. Raises `UsageError` for those that are not `a.b=value`."""
    problems: list[Problem] = []
    trees = [
        tree
        for number, argument in enumerate(arguments, 1)
        if (tree := _read_one(argument, number, problems)) is not None
    ]
    if problems:
        raise UsageError(problems)
    return trees


def _read_one(argument: str, number: int, problems: list[Problem]) -> Branch | None:
    whole = Origin("--set", number, len(_FLAG) + 1, _FLAG + argument, len(argument))
    dotted, equals, text = argument.partition("=")
    if not equals:
        problems.append(Problem("TW005", "", *_no_value(argument), whole))
        return None
    steps = [
        (match[0], whole.at(len(_FLAG) + 1 + match.start(), max(1, len(match[0]))))
        for match in re.finditer(r"[^.]+|(?<![^.])(?=\.|$)", dotted)
    ]
    for step, origin in steps:
        if not step.strip():
            problems.append(Problem("TW005", "", *_no_key(argument), origin))
            return None
    if refusal := _no_place(steps[0][0].strip(), len(steps), text.strip()):
        problems.append(Problem("TW005", "", *refusal, whole))
        return None
    start = len(_FLAG) + len(dotted) + 1

    def locate(line: int, column: int, width: int) -> Origin:
        # A line break inside an argument is rare; such a value is pointed at as a whole.
        return whole.at(start + 1 + (0 if line else column), width)

    value, found = read_yaml(text, locate)
    problems.extend(found)
    node: Node = value or Leaf(None, whole.at(start, 1))
    for step, origin in reversed(steps):
        node = Branch({step.strip(): Child(origin, node)}, origin)
    assert isinstance(node, Branch)
    return node


def _no_value(argument: str) -> tuple[str, str]:
    return "an override needs a value", f"write `--set {argument.strip() or 'a.b'}=VALUE`"


def _no_place(first: str, depth: int, value: str) -> tuple[str, str] | None:
    """Why no scenario can have keys like these, where none can."""
    if first == "extends":
        return "only a file can extend another", f"write `extends: {value}` into the scenario"
    if depth > _MAX_DEPTH:
        return f"an override of {depth} keys", "sections are at most a few keys deep"
    return None


def _no_key(argument: str) -> tuple[str, str]:
    return f"`{argument}` has an empty key", "write keys with one dot between them, `a.b=VALUE`"
