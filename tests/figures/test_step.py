"""Step breakdowns draw what the report says, to the nanosecond."""

import pytest

from tests.figures.made import layout, report_of, traces
from twin.figures.palette import swatch
from twin.figures.step import LEGEND, MEANING, lost_time, scenario_steps, stage_steps
from twin.reports.breakdown import CAUSES, LOST_WORDS


def drawn(figure, scenario):
    """Seconds drawn for a scenario, by trace."""
    return {trace.name: trace.x[list(trace.y).index(scenario)] for trace in traces(figure)}


def test_every_cause_has_a_colour():
    assert set(MEANING) == set(CAUSES)


def test_bars_of_a_scenario_sum_to_its_step():
    reports = [
        report_of("a", compute=12.0, exposed_expert=3.25, bubble=1.75),
        report_of("b", compute=6.5, optimizer=0.5),
    ]
    figure = scenario_steps(reports, "light").figure
    for report in reports:
        total = sum(drawn(figure, report.name).values())
        assert total == pytest.approx(report.step_ns / 1e9, abs=1e-9)


def test_a_cause_that_takes_no_time_anywhere_is_not_drawn():
    figure = scenario_steps([report_of("a", compute=1.0, bubble=1.0)], "light").figure
    assert [trace.name for trace in traces(figure)] == ["Compute", "Bubble"]


def test_a_cause_has_the_same_colour_whatever_is_beside_it():
    alone = scenario_steps([report_of("a", bubble=1.0)], "light").figure
    beside = scenario_steps([report_of("a", compute=1.0, bubble=1.0)], "light").figure
    assert traces(alone)[0].marker.color == traces(beside)[1].marker.color
    assert traces(alone)[0].marker.color == swatch("bubble", "light").fill


def test_segments_say_seconds_and_percent_where_there_is_room():
    figure = scenario_steps([report_of("a", compute=15.0, bubble=4.9, other=0.1)], "light").figure
    assert [trace.text[0] for trace in traces(figure)] == ["15.0 s (75.0 %)", "4.90 s (24.5 %)", ""]


def test_the_title_of_one_scenario_names_its_largest_loss():
    picture = scenario_steps([report_of("a", compute=15.0, bubble=4.0, optimizer=1.0)], "light")
    assert "pipeline bubble, 20.0 % of the step" in picture.title


def test_the_title_of_two_says_which_is_faster_and_why():
    slow = report_of("slow", compute=10.0, exposed_expert=10.0)
    fast = report_of("fast", compute=10.0, exposed_expert=2.0)
    title = scenario_steps([slow, fast], "light").title
    assert title.startswith("fast: a step is 8.00 s (40.0 %) faster than in slow")
    assert "expert all-to-all" in title


def test_every_candidate_has_a_line_of_its_own():
    plans = [report_of(name, compute=size) for name, size in [("a", 4.0), ("b", 3.0), ("c", 5.0)]]
    b, c = scenario_steps(plans, "light").title.splitlines()
    assert b.startswith("b: a step is 1.00 s (25.0 %) faster than in a")
    assert c.startswith("c: a step is 1.00 s (25.0 %) slower than in a")


def test_every_cause_has_a_short_name_of_its_own_in_the_legend():
    assert set(LEGEND) == set(CAUSES)
    assert len(set(LEGEND.values())) == len(CAUSES)
    assert max(map(len, LEGEND.values())) <= 14


def test_long_names_are_broken_so_that_they_leave_room_for_the_bars():
    name = "a-plan-with-a-rather-long-name (copy 2)"
    (label,) = layout(scenario_steps([report_of(name, compute=1.0)], "light").figure).yaxis.ticktext
    lines = label.split("<br>")
    assert max(map(len, lines)) <= 18
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")


def test_the_table_has_every_cause_and_the_step():
    table = scenario_steps([report_of("a", compute=3.0, bubble=1.0)], "light").table
    assert [row["a"] for row in table] == ["3.00 s (75.0 %)", "1.00 s (25.0 %)", "4.00 s"]


def test_every_stage_has_a_bar_as_long_as_the_step():
    report = report_of("a", compute=3.0, bubble=1.0)
    figure = stage_steps(report, "dark").figure
    for role in report.roles:
        assert sum(drawn(figure, role.role).values()) == pytest.approx(4.0)


def test_losses_stand_beside_their_remedies_the_largest_first():
    lost = dict.fromkeys(LOST_WORDS, 0) | {"fill": 10**9, "exposed_expert": 3 * 10**9}
    picture = lost_time(lost, 20 * 10**9, {"fill": "500 ms with virtual = 2"}, "light")
    assert picture.title == (
        "A step loses 4.00 s (20.0 %) beside computing, most of it by waiting for expert all-to-all"
    )
    assert [trace.text[0] for trace in traces(picture.figure)] == [
        "3.00 s (15.0 %)",
        "1.00 s (5.00 %); 500 ms with virtual = 2",
    ]
