"""Shares are drawn with their interval where there is one, and without a whisker where not."""

from dataclasses import replace

from tests.figures.made import report_of, traces
from twin.figures.shares import shares


def test_without_an_interval_there_is_no_whisker():
    picture = shares(report_of("a", compute=1.0), "light")
    assert all(trace.error_x.array is None for trace in traces(picture.figure))
    assert "No whiskers" in picture.caption
    assert {row["80 % interval"] for row in picture.table} == {"unknown"}


def test_an_interval_is_a_whisker_from_its_low_to_its_high_end():
    report = report_of("a", compute=1.0)
    known = replace(
        report,
        kpis={**report.kpis, "mfu": 0.4},
        intervals={**report.intervals, "mfu": (0.3, 0.55)},
    )
    picture = shares(known, "light")
    mfu = next(trace for trace in traces(picture.figure) if trace.name == "MFU")
    assert mfu.x[0] == 40.0
    assert (round(mfu.error_x.arrayminus[0], 9), round(mfu.error_x.array[0], 9)) == (10.0, 15.0)
    assert picture.table[0]["80 % interval"] == "30.0 % to 55.0 %"


def test_shares_are_of_what_the_name_says():
    report = report_of("a", compute=3.0, bubble=1.0)
    known = replace(report, kpis={**report.kpis, "exposed_communication_seconds": 2.0})
    (row,) = (row for row in shares(known, "light").table if row["Share"] == "Exposed comm.")
    assert (row["Value"], row["Of"]) == ("50.0 %", "the step")
