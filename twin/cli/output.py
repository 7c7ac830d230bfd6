"""Where words go: data on stdout, messages and progress on stderr, colour only where a person reads
it.

rich decides on colour: none when the stream is no terminal or NO_COLOR is set (no-color.org).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twin.reports.table import Block, Table

_FILE_WIDTH = 120
"""Columns of tables that go to a file or a pipe."""
IMPOSSIBLE, DOES_NOT_FIT, NOT_AS_EXPECTED, NOT_CALIBRATED = 3, 4, 5, 6
"""Exit codes of an answer that was given in full: a phase's layout is impossible; the plan does not
fit in memory; an expectation or a limit failed; times lie outside the calibrated range, where that
was asked. Of several the lowest counts."""


@dataclass(frozen=True, slots=True)
class Output:
    """How one verb answers: one JSON document, or text of which `quiet` keeps the first sentence
    only."""

    json: bool
    quiet: bool
    verb: str = ""
    """Whose answer it is: the name of its schema in `documents`."""

    def sentence(self, text: str) -> None:
        """The answer in words, on stdout, unless the answer is JSON."""
        if not self.json:
            sys.stdout.write(f"{text}\n")

    @property
    def tables(self) -> bool:
        """True where tables are wanted, and what draws them is worth importing."""
        return not self.json and not self.quiet

    def show(self, *parts: RenderableType | Block) -> None:
        """Tables and notes, on stdout, a blank line before each."""
        from rich.console import Console

        # A file has no width: long rows stay whole there.
        width = None if sys.stdout.isatty() else _FILE_WIDTH
        # Names are the planner's: what looks like markup or an emoji in one is text.
        console = Console(width=width, markup=False, emoji=False)
        for part in parts:
            console.print()
            console.print(drawn(part), highlight=False)

    def document(self, document: Mapping[str, Any]) -> None:
        """The answer as JSON, on stdout, if it was asked for."""
        if self.json:
            sys.stdout.write(dumps(document))

    def answer(
        self,
        document: Mapping[str, Any],
        sentences: Iterable[str],
        tables: Iterable[RenderableType | Block] = (),
    ) -> None:
        """The whole answer: a JSON document, or sentences and tables."""
        self.document(document)
        for text in sentences:
            self.sentence(text)
        if self.tables:
            self.show(*tables)

    def message(self, text: str) -> None:
        """Something to know beside the answer, on stderr."""
        if not self.quiet:
            complain(text)

    @property
    def progress(self) -> bool:
        """True where a progress bar helps: a person watches stderr."""
        return not self.quiet and sys.stderr.isatty()


def dumps(document: Mapping[str, Any]) -> str:
    """JSON text of a document: keys in the order of the contract, one trailing newline, no NaN, and
    ASCII only, which every stream can carry."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def complain(text: str) -> None:
    """A message on stderr, whatever was asked."""
    sys.stderr.write(f"{text}\n")


def drawn(part: RenderableType | Block) -> RenderableType:
    """Tables and notes as rich prints them; anything else stays as it is."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from twin.reports.table import Notes, Table

    if isinstance(part, Table):
        return _drawn_table(part)
    if not isinstance(part, Notes):
        return part
    if not part.title:
        return Group(*map(Text, part.lines))
    texts = [(line.lstrip(), len(line) - len(line.lstrip())) for line in part.lines]
    indented = (Padding(Text(text), (0, 0, 0, 2 + indent)) for text, indent in texts)
    return Group(Text(part.title, style="bold"), *indented)


def _drawn_table(table: Table) -> RenderableType:
    """A table without lines and with two blanks between columns."""
    from rich.table import Table as RichTable

    shown = RichTable(
        title=table.title,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=bool(table.heads),
        caption=table.caption or None,
        caption_justify="left",
    )
    columns = table.heads or [""] * max(map(len, table.rows), default=0)
    for place, head in enumerate(columns):
        shown.add_column(head, justify="left" if place in table.left else "right", overflow="fold")
    for place, row in enumerate(table.rows):
        if place in table.rules:
            shown.add_section()
        shown.add_row(*row, style="dim" if place in table.dim else None)
    return shown


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a new file, or replace one if that is wanted. Raises `UsageError` where that fails."""
    from twin.answers.run_store import unwritable

    require_writable(path, force=force)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from None


def require_writable(path: Path, *, force: bool) -> None:
    """Raise `UsageError` for what can be known before there is anything to write: no file, no
    folder for it, or it exists and is not to be replaced."""
    from twin.answers.run_store import unwritable

    if str(path) == "-":
        _refuse("TW063", "the output is a file, not `-`", "leave --output out to print")
    try:
        folder, exists = path.is_dir(), path.exists()
        lost = not path.absolute().parent.is_dir()
    except OSError as error:
        raise unwritable(path, error) from None
    if folder:
        _refuse("TW063", f"`{path}` is a folder", "name a file in it")
    if lost:
        _refuse("TW063", f"there is no folder `{path.parent}`", f"mkdir -p {path.parent}")
    if exists and not force:
        _refuse("TW064", f"`{path}` exists already", "--force replaces it")


def _refuse(code: str, message: str, fix: str) -> NoReturn:
    from twin.errors import Problem, UsageError

    raise UsageError([Problem(code, "", message, fix)])
