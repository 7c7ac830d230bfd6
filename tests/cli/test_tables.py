"""Tables: what stands in them."""

from __future__ import annotations

from twin.explore.study.attribution import Attribution, Cause
from twin.reports.compare import attribution_table
from twin.reports.table import Notes, Table


def test_a_mark_leads_from_a_cause_to_the_note_that_explains_it() -> None:
    notes = {"a": "together", "b": "", "c": "shared", "d": "together"}
    causes = tuple(Cause(name, (), "", "", 1, {}, note) for name, note in notes.items())
    table, method = attribution_table("B", Attribution(0, 4, causes, {}, "exact", 1))
    assert isinstance(table, Table)
    assert isinstance(method, Notes)
    assert [row[0].split() for row in table.rows[:4]] == [
        ["a", "*"],
        ["b"],
        ["c", "**"],
        ["d", "*"],
    ]
    assert method.lines == ("exact", "* together", "** shared")
