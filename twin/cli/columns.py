"""Tables as a terminal shows them: no lines, two blanks between columns."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twin.reports.table import Block, Notes
from twin.reports.table import Table as Plain


def drawn(part: RenderableType | Block) -> RenderableType:
    """A table or notes as rich prints them; what rich knows already stays as it is."""
    if isinstance(part, Plain):
        return _table(part)
    if isinstance(part, Notes):
        lines = map(Text, part.lines)
        if not part.title:
            return Group(*lines)
        indented = (Padding(line, (0, 0, 0, 2)) for line in lines)
        return Group(Text(part.title, style="bold"), *indented)
    return part


def _table(plain: Plain) -> Table:
    table = headed(plain.title, *plain.heads, left=plain.left)
    if not plain.heads:
        table.show_header = False
        for at in range(max(map(len, plain.rows), default=0)):
            table.add_column(justify="left" if at in plain.left else "right")
    for at, row in enumerate(plain.rows):
        if at in plain.rules:
            table.add_section()
        table.add_row(*row, style="dim" if at in plain.dim else None)
    if plain.caption:
        table.caption, table.caption_justify = plain.caption, "left"
    return table


def headed(title: str, *headings: str, left: Collection[int] = (0,)) -> Table:
    """A table whose columns stand to the right, but for those `left`."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at in left else "right")
    return table
