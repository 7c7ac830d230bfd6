"""What can be wrong with an input, as data, and the one renderer that shows it.

    TwinError               exit 1   the root; never raised itself
    ├── UsageError          exit 2   the command asks for something that does not exist
    └── ScenarioError       exit 3   the scenario is invalid, or its layout impossible

    FieldError (ValueError)          raised by a section's validator; the loader reports it

Each carries `Problem`s: all that were found, at once. Codes are stable: a code never changes its
meaning. `TW0xx` are found while loading and explained in `CODES`; `TW1xx` are rules of layouts and
belong to the rooms that judge them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

CODES = {
    "TW001": "a file cannot be found or read",
    "TW002": "the text is not YAML",
    "TW003": "a key is written twice",
    "TW004": "files extend each other in a circle",
    "TW005": "a file or an override has the wrong structure",
    "TW006": "no catalog part has this name",
    "TW007": "a catalog number has no valid source",
    "TW010": "unknown key",
    "TW011": "a required field is missing",
    "TW012": "a number without the unit that its field needs",
    "TW013": "an unknown, ambiguous or wrong unit",
    "TW014": "a value of the wrong type",
    "TW015": "a value out of range",
    "TW016": "not one of the choices",
    "TW017": "fields of one section contradict each other",
    "TW040": "a known part that the catalog cannot express",
    "TW041": "a file that cannot be imported, or that another command reads",
    "TW042": "a setting of a configuration that cannot be expressed",
    "TW043": "a key of a configuration whose effect is unknown",
    "TW050": "an expectation or a limit without a comparison",
    "TW051": "no key figure has this name",
    "TW052": "a key figure compared with a wrong type or unit",
    "TW053": "a key figure that this scenario leaves unknown",
    "TW060": "no stored run has this name",
    "TW061": "the beginning of several stored runs' names",
    "TW062": "a stored run that this version cannot read",
    "TW063": "a file or folder cannot be written or removed",
    "TW064": "the output exists already",
    "TW065": "no format has this name",
    "TW066": "an invalid age",
}
"""Stable codes of the loading stage, with what each means."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: 1-based line and column, with the text of that line.

    `file` is `--set` for the n-th override (`line` n), and `default` where nobody wrote the value.
    `via` is the place that brought the file in: it `extends` it, or `names` it as a catalog part.
    """

    file: str
    line: int = 0
    column: int = 0
    text: str = ""
    width: int = 1
    via: Origin | None = None
    how: Literal["extends", "names"] = "extends"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def at(self, column: int, width: int) -> Origin:
        """Another place on the same line."""
        return replace(self, column=column, width=width)


DEFAULT = Origin("default")
"""The origin of a value that nobody wrote."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: a stable code, the dotted path of the guilty field, what is wrong
    with it, the nearest fix, and where it was written.

    Message and hint quote what was written, which may be anything: they are kept printable, and
    short where a value is not.
    """

    code: str
    path: str
    message: str
    hint: str = ""
    origin: Origin | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _shortened(printable(self.message)))
        object.__setattr__(self, "hint", _shortened(printable(self.hint)))

    def as_dict(self) -> dict[str, str | int | None]:
        """The problem for `--json`: flat, its position as file, line and column (null if none)."""
        place = self.origin if self.origin and self.origin.line else None
        return {
            "code": self.code,
            "path": self.path,
            "message": self.message,
            "hint": self.hint,
            "file": printable(place.file) if place else None,
            "line": place.line if place else None,
            "column": place.column if place else None,
        }


class TwinError(Exception):
    """Something that a user can understand and mend; `str()` is the rendered text."""

    exit_code = 1

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return render(self.problems)


class UsageError(TwinError):
    """The command asks for something that does not exist or cannot be read."""

    exit_code = 2


class ScenarioError(TwinError):
    """The scenario is invalid, or describes a layout that cannot run."""

    exit_code = 3


class FieldError(ValueError):
    """A rule of one section is broken; raised by its validator, reported at the field that was
    being validated."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


_EXCERPT = 120
"""Characters of a source line that are shown."""
_LONGEST = 300
"""Characters of a quoted value that are shown."""
_SHOWN = 50
"""Problems of one input that are shown."""


def printable(text: str) -> str:
    """The text with `?` for whatever no terminal should be sent, or no encoding can hold."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def _shortened(text: str) -> str:
    """The text without the middle of quoted values, and of other stretches, that are too long."""
    too_long = rf"[^`]{{{_LONGEST + 1},}}"
    return re.sub(too_long, lambda found: f"{found[0][:200]}...{found[0][-60:]}", text)


def render(problems: Iterable[Problem]) -> str:
    """The problems as plain text with a blank line between them: `file:line:column: code message`,
    the source line, a caret under the guilty part, the hint, and what brought the file in. Of very
    many the first ones, and how many more there are."""
    found = list(problems)
    more = [f"... and {len(found) - _SHOWN:,} more problems"] if len(found) > _SHOWN else []
    return "\n\n".join([*map(_render_one, found[:_SHOWN]), *more])


def _render_one(problem: Problem) -> str:
    origin = problem.origin
    if origin is None or not origin.line:
        where = f"{problem.path}: " if problem.path else ""
        lines = [f"{where}{problem.code} {problem.message}"]
    else:
        lines = [f"{origin}: {problem.code} {problem.message}", *_excerpt(origin)]
    if problem.hint:
        lines.append(f"  hint: {problem.hint}")
    return "\n".join(printable(line) for line in [*lines, *_arrival(origin)])


def _excerpt(origin: Origin) -> list[str]:
    """The source line and the caret line. Tabs become one space, so that the caret stands where the
    text does; of a long line only the part around the guilty one is shown."""
    text = origin.text.replace("\t", " ")
    start, mark = origin.column - 1, "^" * max(1, origin.width)
    if len(text) > _EXCERPT and start > _EXCERPT // 2:
        cut = start - _EXCERPT // 4
        text, start = f"...{text[cut:]}", start - cut + 3
    if len(text) > _EXCERPT:
        text = f"{text[: _EXCERPT - 3]}..."
    return [f"  | {text}".rstrip(), f"  | {' ' * start}{mark[: max(1, _EXCERPT - start)]}"]


def _arrival(origin: Origin | None) -> list[str]:
    """How the file came in, nearest step first."""
    lines: list[str] = []
    while origin is not None and origin.via is not None:
        lines.append(f"  from: {origin.via} {origin.how} {origin.file}")
        origin = origin.via
    return lines
