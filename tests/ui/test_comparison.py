"""Changes carry their direction in words and colour; no change is said to be none."""

import re
from dataclasses import replace

import pytest

from tests.figures.made import report_of
from tests.ui.test_pages import words
from twin.engine.trace import CAUSES
from twin.explore.study.attribution import Attribution, Cause
from twin.reports import compare
from twin.spec.kpis import KPIS
from twin.ui.comparison import attribution_rows, change, input_rows, kpi_rows

KPI = {kpi.key: kpi for kpi in KPIS}


def with_kpi(name, key, value):
    report = report_of(name, compute=1.0)
    return replace(report, kpis={**report.kpis, key: value})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("step_seconds", 0.8, "-20.0 %, better"),
        ("step_seconds", 1.2, "+20.0 %, worse"),
        ("mfu", 0.8, "-20.0 points, worse"),
        ("mfu", 1.2, "+20.0 points, better"),
        ("mfu", 1.0, ""),
        ("cost_usd", None, ""),
    ],
)
def test_a_change_says_its_size_and_whether_it_is_good(key, value, words):
    comparison = compare([report_of("a", compute=1.0), with_kpi("b", key, value)])
    assert change(KPI[key], comparison.deltas[0].kpis[key]) == words


def test_the_table_colours_good_and_bad_and_names_what_did_not_change():
    comparison = compare([report_of("a", compute=1.0), with_kpi("b", "mfu", 0.5)])
    rows = {row["Key figure"]: row["b"] for row in kpi_rows(comparison, KPIS)}
    assert rows["Model FLOP utilisation (MFU)"] == "50.0 % :red[(-50.0 points, worse)]"
    assert rows["Step time"].endswith("(no change)")


def test_differences_only_leaves_out_what_no_plan_changes():
    comparison = compare([report_of("a", compute=1.0), with_kpi("b", "mfu", 0.5)])
    (row,) = kpi_rows(comparison, KPIS, changed_only=True)
    assert row["Key figure"] == "Model FLOP utilisation (MFU)"


def test_inputs_of_all_plans_stand_side_by_side():
    plans = [
        replace(report_of(name, compute=1.0), scenario={"cluster": {"nodes": nodes}, "x": x})
        for name, nodes, x in [("a", 1, True), ("b", 2, True), ("c", 1, None)]
    ]
    assert input_rows(compare(plans)) == [
        {"Field": "`cluster.nodes`", "a": "1", "b": "2", "c": "1"},
        {"Field": "`x`", "a": "yes", "b": "yes", "c": "none"},
    ]


def test_what_changes_are_worth_is_said_with_direction_and_sums_up():
    nothing: dict[str, int] = dict.fromkeys(CAUSES, 0)
    slower = Cause("x", ("x",), "1", "2", 2_000_000_000, {**nothing, "bubble": 2_000_000_000})
    idle = Cause("y", ("y",), "1", "2", 0, nothing)
    found = Attribution(10_000_000_000, 12_000_000_000, (slower, idle), slower.breakdown_ns, "", 4)
    rows = attribution_rows(found)
    assert [row["Step"] for row in rows] == ["+2.00 s, slower", "no change", "**+2.00 s, slower**"]
    assert rows[0]["Mostly"] == "pipeline bubble"


@pytest.mark.usefixtures("freed")
def test_a_lone_whole_run_is_compared_with_itself_on_twice_the_nodes(opened):
    app = opened("kimi-k2-whole-run-256xh800", page="compare")
    assert "An example:" in words(app)
    (title,) = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert re.search(r"the run is 1\d\d d \(4\d\.\d %\) faster", title), title
