"""A table as plain data: the command line prints it, the app shows it, an export writes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

_WIDTH = 24
"""Characters of a full bar."""


@dataclass(slots=True)
class Table:
    """A title, column heads, rows of cells and a caption. Columns in `left` stand to the left, all
    others to the right; a table without heads has rows that name themselves."""

    title: str
    heads: tuple[str, ...] = ()
    left: frozenset[int] = frozenset((0,))
    rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    rules: set[int] = field(default_factory=set[int])
    """Indices of rows above which a section ends."""
    dim: set[int] = field(default_factory=set[int])
    """Indices of rows that matter less."""
    caption: str = ""

    def add_row(self, *cells: object, dim: bool = False) -> None:
        """Append a row; `dim` where it matters less."""
        self.dim.update([len(self.rows)] if dim else ())
        self.rows.append(tuple(str(cell) for cell in cells))

    def add_section(self) -> None:
        """End a section: the next row begins another one."""
        self.rules.add(len(self.rows))

    def records(self) -> list[dict[str, str]]:
        """The rows by column head; heads that are empty or repeated get a number."""
        width = max((len(row) for row in self.rows), default=len(self.heads))
        heads = [*self.heads, *[""] * (width - len(self.heads))]
        names = [
            name if name and heads.index(name) == at else f"{name} {at + 1}".strip()
            for at, name in enumerate(heads)
        ]
        return [dict(zip(names, row, strict=False)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Notes:
    """Paragraphs under a title: warnings, expectations."""

    title: str
    lines: tuple[str, ...]


Block: TypeAlias = Table | Notes
"""What an answer consists of besides its sentences."""


def headed(title: str, *heads: str, left: Collection[int] = (0,)) -> Table:
    """An empty table with column heads."""
    return Table(title, heads, frozenset(left))


def headless(title: str, *sides: str) -> Table:
    """An empty table without heads; a column whose side is not `right` stands to the left."""
    return Table(title, (), frozenset(at for at, side in enumerate(sides) if side != "right"))


def bar(share: float, width: int = _WIDTH) -> str:
    """A bar of `share` (0 to 1) of the width, to an eighth of a character; above zero it shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, part = divmod(max(eighths, 1) if share > 0 else 0, 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[part].strip()


def percent(share: float) -> str:
    """A share as a percentage with one decimal, so that a column of them adds up by eye."""
    return f"{100 * share:.1f} %"


def warning_notes(warnings: Iterable[Any], title: str = "Warnings") -> list[Notes]:
    """Warnings, each with its code; nothing where there are none."""
    lines = tuple(f"{warning.code}: {warning.message}" for warning in warnings)
    return [Notes(title, lines)] if lines else []


def lookup(rows: Mapping[str, object], title: str, side: str = "right") -> Table:
    """A table of names and values, which stand to the right or the `left`."""
    table = headless(title, "left", side)
    for name, value in rows.items():
        table.add_row(name, value)
    return table
