"""YAML 1.2 text to a tree with positions: the one module that talks to ruamel.

It reads ruamel's composed node graph, which has every position and costs a quarter of its
round-trip mode. Duplicate keys are reported with both positions. Tags, merge keys and directives
(YAML 1.1 among them) are refused; anchors and aliases work; dates stay text.

A resolved scenario for people: every leaf with its origin; and the hash that names it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

from twin.errors import DEFAULT, Origin, Problem, printable
from twin.loading.tree import Branch, Child, Items, Leaf, Node
from twin.scenario import Root
from twin.sources import Sourced, Written

Locate = Callable[[int, int, int], Origin]
"""The origin of a 0-based line and column, so many characters wide."""

_MAX_NODES = 100_000
"""Aliases can write a tree far larger than its text; scenarios have some hundred values."""
_MAX_CHARACTERS = 250_000
"""Of a text; reading so many takes some seconds."""
_KEPT_CHARACTERS = 5_000
"""Of a text that is remembered; its graph takes some 40 bytes of memory for each."""
_MAX_DEPTH = 100
_MAX_DIGITS = 100
"""What is longer is no number that anybody wrote, and stays text."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_YAML_1_2 = re.compile(r"%YAML\s+1\.2\s*(#.*)?")

_SYNTAX_HINTS = {
    "mapping values are not allowed": "text that contains `: ` needs quotes",
    "'\\t' that cannot start any token": "indent with spaces, not tabs",
    "cannot start any token": "text that begins with a sign of YAML needs quotes",
    "expected ',' or": "close the bracket",
}


class _TooMuchError(Exception):
    """The tree is larger than any scenario; `mark` is where it became so."""

    def __init__(self, message: str, mark: Any) -> None:
        super().__init__(message)
        self.mark = mark


@dataclass(slots=True)
class _Reading:
    """What is known while one text becomes a tree."""

    lines: list[str]
    locate: Locate
    problems: list[Problem] = field(default_factory=list[Problem])
    nodes: int = 0

    def origin(self, start: Any, end: Any | None = None) -> Origin:
        """The origin of a span; one that goes on over lines ends with its first."""
        line, column = int(start.line), int(start.column)
        length = len(self.lines[line]) if line < len(self.lines) else column
        stop = int(end.column) if end is not None and end.line == line else length
        return self.locate(line, column, max(1, stop - column))

    def refuse(self, code: str, origin: Origin, message: str, hint: str = "") -> None:
        self.problems.append(Problem(code, "", message, hint, origin))

    def text(self, scalar: Any, origin: Origin) -> str:
        """The characters of a scalar. JSON writes those beyond 16 bits as a pair of escapes; half
        of a pair is no character."""
        text = str(scalar.value)
        if not _SURROGATE.search(text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            message = "half of a character that takes two escapes"
            self.refuse("TW002", origin, message, "write the character itself")
            return _SURROGATE.sub("?", text)


def split_lines(text: str) -> list[str]:
    """The lines of a text as YAML breaks them."""
    return re.split("\r\n|[\n\r\x85\u2028\u2029]", text)


def read_yaml(text: str, locate: Locate) -> tuple[Node | None, list[Problem]]:
    """The tree of one YAML document (None for an empty or unreadable one), and what is wrong."""
    if len(text) > _MAX_CHARACTERS:
        message = f"more than {_MAX_CHARACTERS:,} characters"
        return None, [Problem("TW002", "", message, "", locate(0, 0, 1))]
    reading = _Reading(split_lines(text), locate)
    directive = _directive(reading.lines)
    if directive is not None:
        place = locate(directive, 0, len(reading.lines[directive]))
        reading.refuse("TW002", place, "directives mean nothing here", "leave this line out")
        return None, reading.problems
    from ruamel.yaml.error import MarkedYAMLError, YAMLError  # noqa: PLC0415

    try:
        root = _known(text) if len(text) <= _KEPT_CHARACTERS else _composed(text)
        tree = None if root is None else _node(root, reading, 0)
    except MarkedYAMLError as error:
        reading.problems.append(_syntax(error, reading))
        return None, reading.problems
    except _TooMuchError as error:
        reading.refuse("TW002", reading.origin(error.mark, error.mark), str(error))
        return None, reading.problems
    except YAMLError as error:
        before = split_lines(text[: getattr(error, "position", 0)])
        place = locate(len(before) - 1, len(before[-1]), 1)
        reading.refuse("TW002", place, f"not YAML: {str(error).splitlines()[0]}")
        return None, reading.problems
    return tree, reading.problems


def _composed(text: str) -> Any:
    """ruamel's node graph of a text."""
    from ruamel.yaml import YAML  # noqa: PLC0415  most commands read kept trees only

    yaml: Any = YAML(typ="safe", pure=True)
    yaml.max_depth = _MAX_DEPTH + 1  # ruamel counts the root
    return yaml.compose(text)


_known = lru_cache(maxsize=512)(_composed)
"""The same texts come again: parts by many ways, overrides with every plan; nobody changes a
graph."""


def _directive(lines: list[str]) -> int | None:
    """The first line, before any content, that tells a parser what to do; to read YAML 1.2 it need
    not be told."""
    for number, line in enumerate(lines):
        if line.startswith("%") and not _YAML_1_2.fullmatch(line):
            return number
        if line.strip() and not line.lstrip().startswith(("%", "#")):
            return None
    return None


def _syntax(error: Any, reading: _Reading) -> Problem:
    marked: Any = error
    mark = marked.problem_mark or marked.context_mark
    context = f" {marked.context}" if marked.context else ""
    problem = str(marked.problem).replace("\t", "\\t")
    hint = next((hint for words, hint in _SYNTAX_HINTS.items() if words in problem), "")
    origin = reading.origin(mark, mark) if mark else reading.locate(0, 0, 1)
    if problem.startswith("maximum depth"):
        return Problem("TW002", "", "nested too deeply", "", origin)
    return Problem("TW002", "", f"not YAML: {problem}{context}", hint, origin)


def _node(node: Any, reading: _Reading, depth: int) -> Node:
    reading.nodes += 1
    if depth > _MAX_DEPTH:
        raise _TooMuchError("nested too deeply", node.start_mark)
    if reading.nodes > _MAX_NODES:
        message = f"more than {_MAX_NODES:,} values, those of aliases counted"
        raise _TooMuchError(message, node.start_mark)
    origin = reading.origin(node.start_mark, node.end_mark)
    # A tag that somebody wrote has a handle (`!`, `!!`), or is none of YAML's own.
    if node.ctag.handle is not None or not str(node.tag).startswith("tag:yaml.org,2002:"):
        reading.refuse("TW002", origin, f"the tag `{node.tag}` means nothing here", "leave it out")
    if node.id == "mapping":
        return _branch(node, reading, origin, depth)
    if node.id == "sequence":
        entries: list[Any] = getattr(node, "value")  # noqa: B009  # untyped in ruamel
        return Items(tuple(_node(item, reading, depth + 1) for item in entries), origin)
    return Leaf(_scalar(reading.text(node, origin), str(node.tag)), origin)


def _branch(node: Any, reading: _Reading, origin: Origin, depth: int) -> Branch:
    children: dict[str, Child] = {}
    for key, value in node.value:
        place = reading.origin(key.start_mark, key.end_mark)
        child = Child(place, _node(value, reading, depth + 1))
        if isinstance(child.node, Leaf) and value.start_mark.index == value.end_mark.index:
            # ruamel marks an empty value where the next token stands; a reader sees the key.
            child = Child(place, replace(child.node, origin=place))
        if key.id != "scalar":
            reading.refuse("TW005", place, "a key must be plain text")
            continue
        name = reading.text(key, place)
        if name == "<<":
            advice = "write the keys out, or `extends` a file"
            reading.refuse("TW005", place, "YAML 1.2 has no merge keys", advice)
            continue
        if name in children:
            hint = f"keep one of them; the first is at {children[name].key}"
            reading.refuse("TW003", place, f"the key `{name}` is written twice", hint)
            continue
        children[name] = child
    return Branch(children, origin)


def _scalar(text: str, tag: str) -> Written:
    """The value of a scalar under the core schema of YAML 1.2, in which `no` is text."""
    tag = tag.rpartition(":")[2]
    if tag == "null" and text.lower() in ("", "~", "null"):
        return None
    if tag == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if len(text) > _MAX_DIGITS:
        return text
    try:
        if tag == "int":
            digits = text.replace("_", "")
            return int(digits, 0 if re.match(r"[-+]?0[box]", digits) else 10)
        if tag == "float":
            return float(re.sub(r"\.(inf|nan)", r"\1", text.lower().replace("_", "")))
    except ValueError:
        pass  # ruamel's pattern also takes a few texts that are no numbers, like `1__`
    return text


_Json: TypeAlias = "dict[str, _Json] | list[_Json] | str | int | float | bool | None"

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+(-][A-Za-z0-9_./+(),-]*)*")
_RESERVED = re.compile(r"(?i)true|false|null|~|[-+]?[0-9._]+(e[-+]?[0-9]+)?|0[xob][0-9a-f_]+|\.nan")
_COMMENT_COLUMN = 44


@dataclass(frozen=True, slots=True)
class Row:
    """One leaf of a resolved scenario: the value with its unit, where it was written, and how the
    number is known if it came from the catalog."""

    path: str
    value: Written
    origin: Origin
    known: Sourced | None = None


def rows(scenario: Root) -> tuple[Row, ...]:
    """Every leaf in the order of the fields; items of lists count from 0."""
    leaves = _leaves(scenario.model_dump(mode="json", by_alias=True), "")
    return tuple(
        Row(path, value, scenario.origin(path), scenario.ledger.get(path)) for path, value in leaves
    )


def resolve(scenario: Root, *, comments: bool = True) -> str:
    """The scenario written out whole, as YAML that loads to the same scenario; a comment beside
    each leaf says where it was written, and how a catalog number is known."""
    document = scenario.model_dump(mode="json", by_alias=True)
    lines = _lines(document, "", 0)
    return "".join(
        f"{_with_comment(scenario, text, path) if comments else text}\n" for text, path in lines
    )


def scenario_hash(scenario: Root) -> str:
    """16 hexadecimal digits that name what was computed: the SHA-256 of all values, catalog values
    and defaults included, without the scenario's name, expectations, sweep, start, comments,
    sources. A run without phases has the same name whether phases can be written or not."""
    left_out = {"name", "expect", "sweep", "start"}
    values = scenario.model_dump(mode="python", by_alias=True, exclude=left_out)
    values = {key: one for key, one in values.items() if one or key not in ("phases", "data")}
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _leaves(value: _Json, path: str) -> Iterator[tuple[str, Written]]:
    if isinstance(value, dict | list) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif not isinstance(value, dict):
        yield path, "[]" if isinstance(value, list) else value


def _lines(section: Mapping[str, _Json], path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Lines of YAML, each with the path that its comment is about ("" for none)."""
    indent = "  " * depth
    for key, item in section.items():
        below = f"{path}.{key}" if path else key
        if isinstance(item, dict) and item:
            yield f"{indent}{key}:", ""
            yield from _lines(item, below, depth + 1)
        elif isinstance(item, list) and item and all(isinstance(entry, dict) for entry in item):
            yield f"{indent}{key}:", ""
            for index, entry in enumerate(item):
                assert isinstance(entry, dict)
                (first, about), *rest = _lines(entry, f"{below}.{index}", depth + 2)
                yield f"{indent}  - {first.lstrip()}", about
                yield from rest
        else:
            yield f"{indent}{key}: {_written(item)}", below


def _written(value: _Json) -> str:
    """A scalar, or a list, as YAML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(_written(item) for item in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_written(key)}: {_written(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and not _RESERVED.fullmatch(value):
        return value
    # YAML reads only printable characters as they stand; a few of the others break lines.
    return json.dumps(value, ensure_ascii=not value.isprintable())


def _with_comment(scenario: Root, text: str, path: str) -> str:
    if not path:
        return text
    known = scenario.ledger.get(path)
    source = f", {known.source.id}" if known and known.source else ""
    how = f" ({known.kind}{source})" if known else ""
    origin = scenario.origin(path)
    where = printable(origin.text if origin.file == "--set" else str(origin))
    if origin.via == DEFAULT:
        where = f"{DEFAULT}: {where}"
    return f"{text:<{_COMMENT_COLUMN}}  # {where}{how}"
