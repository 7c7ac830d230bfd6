"""Memory over time is drawn up to the ledger's peak, marked and named."""

import pytest

from tests.figures.made import layout, traces
from tests.reports.runs import played
from twin.figures.memory import POINTS, host_over_time, memory_over_time
from twin.reports.memory_series import memory_series

GIB = 2.0**30


def drawn(name, role=0):
    planned, trace, report = played(name)
    series = memory_series(planned, trace, role)
    return memory_over_time(series, report.memory, trace, "light"), series, report


@pytest.mark.parametrize("name", ["1f1b", "k2", "long"])
def test_the_areas_reach_the_peak_and_no_higher(name):
    picture, series, report = drawn(name)
    areas = [trace for trace in traces(picture.figure) if trace.stackgroup]
    total = [sum(levels) for levels in zip(*(area.y for area in areas), strict=True)]
    assert max(total) == pytest.approx(series.peak_bytes / GIB)
    assert max(total) == pytest.approx(report.memory.stages[0].peak_bytes / GIB)
    assert len(total) <= POINTS + 1


def test_the_peak_is_marked_where_it_is_and_named():
    picture, series, _ = drawn("1f1b")
    marker = next(trace for trace in traces(picture.figure) if trace.mode == "markers")
    assert (marker.x[0], marker.y[0]) == (series.peak_ns / 1e9, series.peak_bytes / GIB)
    assert series.peak_moment in picture.title


def test_the_budget_is_a_line_across():
    picture, _, report = drawn("1f1b")
    line = next(trace for trace in traces(picture.figure) if "Budget" in (trace.name or ""))
    assert set(line.y) == {report.memory.budget / GIB}


def test_a_repeated_part_is_marked_as_on_the_timeline():
    picture, _, _ = drawn("long")
    notes = [note.text for note in layout(picture.figure).annotations]
    assert any("drawn once" in note for note in notes)


def test_the_table_has_least_most_and_the_peak_of_every_category():
    picture, _, _ = drawn("1f1b")
    assert picture.table[-1]["Category"] == "All"
    parameters = next(row for row in picture.table if row["Category"] == "Parameters")
    assert parameters["Least"] == parameters["Most"]


def test_host_memory_is_stacked_up_to_what_the_ledger_has_there():
    planned, trace, report = played("offload")
    series = memory_series(planned, trace, 0)
    picture = host_over_time(series, trace, "light")
    areas = [one for one in traces(picture.figure) if one.stackgroup]
    total = [sum(levels) for levels in zip(*(area.y for area in areas), strict=True)]
    assert max(total) == pytest.approx(sum(report.memory.stages[0].host.values()) / GIB)
    assert "come and go" in picture.title
    assert {row["Category"] for row in picture.table} >= {"Activations", "All"}
