"""Empty tables, as the verbs draw them: no lines, two blanks between columns."""

from __future__ import annotations

from collections.abc import Collection

from rich.table import Table


def headed(title: str, *headings: str, left: Collection[int] = (0,)) -> Table:
    """A table whose columns stand to the right, but for those `left`."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at in left else "right")
    return table


def headless(title: str, *justify: str) -> Table:
    """A table of rows that name themselves; a column that is not `right` stands to the left."""
    table = headed(title)
    table.show_header = False
    for side in justify:
        table.add_column(justify="right" if side == "right" else "left")
    return table
