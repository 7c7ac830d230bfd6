"""Tables for a terminal: what stands in them."""

from __future__ import annotations

from rich.console import Console

from twin.cli.tables import attribution_table
from twin.explore.study.attribution import Attribution, Cause

WIDE = 60 * "x"
"""A value that leaves room for the title on one line."""


def test_a_mark_leads_from_a_cause_to_the_note_that_explains_it() -> None:
    notes = {"a": "together", "b": "", "c": "shared", "d": "together"}
    causes = tuple(Cause(name, (), "", WIDE, 1, {}, note) for name, note in notes.items())
    console = Console(width=120)
    with console.capture() as seen:
        console.print(attribution_table("B", Attribution(0, 4, causes, {}, "exact", 1)))
    _, *lines = (line.split() for line in seen.get().splitlines())
    assert [line[:-3] for line in lines[:4]] == [["a", "*"], ["b"], ["c", "**"], ["d", "*"]]
    assert [" ".join(line) for line in lines[5:]] == ["exact", "* together", "** shared"]
