"""Changes carry their direction in words and colour; no change is said to be none."""

from dataclasses import replace

import pytest

from tests.figures.made import report_of
from twin.plan.types import Warning
from twin.report import compare
from twin.ui.tables import change, input_rows, kpi_rows, warnings_by_plan


def with_kpi(name, key, value):
    report = report_of(name, compute=1.0)
    return replace(report, kpis={**report.kpis, key: value})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("step_seconds", 0.8, "-20.0 %, better"),
        ("step_seconds", 1.2, "+20.0 %, worse"),
        ("mfu", 0.8, "-20.0 %, worse"),
        ("mfu", 1.2, "+20.0 %, better"),
        ("mfu", 1.0, ""),
        ("cost_usd", None, ""),
    ],
)
def test_a_change_says_its_size_and_whether_it_is_good(key, value, words):
    comparison = compare([report_of("a", compute=1.0), with_kpi("b", key, value)])
    assert change(comparison.deltas[0].kpis[key]) == words


def test_the_table_colours_good_and_bad_and_names_what_did_not_change():
    reports = [report_of("a", compute=1.0), with_kpi("b", "mfu", 0.5)]
    rows = {row["Key figure"]: row["b"] for row in kpi_rows(reports, compare(reports))}
    assert rows["Model FLOP utilisation (MFU)"] == "50.0 % :red[(-50.0 %, worse)]"
    assert rows["Step time"].endswith("(no change)")


def test_one_plan_alone_has_no_changes():
    (row, *_) = kpi_rows([report_of("a", compute=1.0)], None)
    assert row == {"Key figure": "Step time", "a": "1.00 s"}


def test_inputs_of_all_plans_stand_side_by_side():
    plans = [
        replace(report_of(name, compute=1.0), scenario={"cluster": {"nodes": nodes}, "x": x})
        for name, nodes, x in [("a", 1, True), ("b", 2, True), ("c", 1, None)]
    ]
    assert input_rows(compare(plans)) == [
        {"Field": "`cluster.nodes`", "a": "1", "b": "2", "c": "1"},
        {"Field": "`x`", "a": "yes", "b": "yes", "c": "none"},
    ]


def test_a_warning_of_several_plans_is_said_once():
    both, one = Warning("x", "of both"), Warning("y", "of one")
    plans = [
        replace(report_of("a", compute=1.0), warnings=(both, one)),
        replace(report_of("b", compute=1.0), warnings=(both,)),
    ]
    assert warnings_by_plan(plans) == {both: ["a", "b"], one: ["a"]}
