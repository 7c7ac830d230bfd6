"""The page Explore: what is asked is what the command line would be asked, what is found opens as
the scenario that was answered."""

from __future__ import annotations

import csv
import io
import time

import pyarrow.parquet as pq
import pytest

from tests.ui import calls
from tests.ui.conftest import checked, events
from tests.ui.test_pages import words
from twin.errors import UsageError
from twin.explore.search.space import Goal
from twin.explore.sweep.sweep import Sweep
from twin.loading import load, scenario_hash
from twin.scenario import Scenario
from twin.ui.answers import Question, Refusal, scenario_of
from twin.ui.background import Stopped
from twin.ui.explore import questions, work
from twin.ui.explore.break_even import main_levers, nearest, runway, stand, stops
from twin.ui.explore.exports import Choosable, as_csv, as_html, as_parquet, columns, draft_of
from twin.ui.explore.questions import (
    MOST,
    SearchAsked,
    SearchResult,
    SweepAsked,
    problem,
    read_sizes,
)
from twin.ui.scenarios import stamp
from twin.ui.workspace import Draft

FULL = "gpt-175b-64xa100-full"
PLAN = Question(FULL, None, (), stamp())
OWN = {"pipeline": 8, "virtual": 3, "tensor": 8, "context": 1, "expert": 1, "expert_tensor": 1}
HELD = tuple((OWN | {"zero": 0}).items())
SMALL = SearchAsked(PLAN, "64,128", target="400d", held=HELD, most=3)
"""A search of seconds: only micro-batches, schedules and memory policies are tried."""


def silent(_: float) -> None:
    """Notes nothing."""


@pytest.fixture(scope="module")
def found() -> SearchResult:
    """What the small search finds."""
    made = work.search(SMALL, silent)
    assert isinstance(made, SearchResult), made
    return made


@pytest.mark.parametrize(
    ("low", "high", "step", "sizes"),
    [
        ("16", "128", "x2", "16,32,64,128"),
        ("16", "104", "x2", "16,32,64"),
        ("64", "256", "64", "64:256:64"),
        ("64", "128", "", "64:128"),
    ],
)
def test_three_fields_are_sizes_as_the_command_takes_them(low, high, step, sizes) -> None:
    assert read_sizes(load(FULL), low, high, step) == sizes


@pytest.mark.parametrize(
    ("low", "high", "step", "said"),
    [
        ("63", "128", "x2", "nearest 56 or 64"),
        ("many", "128", "64", "write 256:4096"),
        ("128", "64", "x2", "write 64:128"),
        ("64", "128", "x1", "write `x2` to double"),
    ],
)
def test_a_wrong_size_is_refused_with_the_nearest_fix(low, high, step, said) -> None:
    none, wrong = problem(lambda: read_sizes(load(FULL), low, high, step))
    assert none is None
    assert wrong.startswith("TW432")
    assert said in wrong


def test_a_search_is_the_command_that_asks_the_same() -> None:
    asked = SearchAsked(Question(FULL, None, ("train.tokens=1T",), 0), "64:128", budget="2MUSD")
    assert asked.command == (
        f"twin recommend {FULL} --set train.tokens=1T --gpus 64:128 --budget 2MUSD --most {MOST}"
    )
    assert "--axis parallel.tensor=8" in SMALL.command
    assert SMALL.goal == Goal(days=400.0)
    with pytest.raises(UsageError) as error:
        _ = SearchAsked(PLAN, "64", target="400").goal
    assert error.value.problems[0].code == "TW433"


def test_what_is_found_opens_as_the_scenario_that_was_answered(found) -> None:
    assert found.picked is not None
    hashes = {one["best"]["hash"] for one in found.document["sizes"] if one["best"]}
    leaders = [one for one in found.spots if one.role in ("picked", "frontier")]
    for spot in leaders:
        draft = draft_of(Draft(FULL, FULL), Choosable(spot.name, spot.overrides, ()))
        scenario = scenario_of(Question(FULL, None, draft.sets, stamp()))
        assert isinstance(scenario, Scenario), scenario
        assert scenario_hash(scenario) in hashes, spot.name


def test_edits_of_a_section_that_a_point_replaces_go() -> None:
    plan = Draft("p", FULL, edits=(("parallel.schedule.kind", "1f1b"), ("train.tokens", "1T")))
    point = Choosable("q", {"parallel.schedule": {"kind": "zb_h1"}, "parallel.layers": None}, ())
    assert draft_of(plan, point).edits == (
        ("train.tokens", "1T"),
        ("parallel.schedule", "{kind: zb_h1}"),
        ("parallel.layers", "null"),
    )


def test_points_have_names_of_their_own_and_reasons_where_they_cannot_run(found) -> None:
    names = [one.name for one in found.spots]
    assert len(set(names)) == len(names)
    unfit = [one for one in found.spots if one.status != "fits"]
    assert unfit
    assert all(one.why for one in unfit)
    assert all(one.kpis for one in found.fitting)


def test_files_hold_every_point_with_its_unit(found) -> None:
    table = columns(found)
    rows = list(csv.DictReader(io.StringIO(as_csv(table).decode())))
    assert [row["layout"] for row in rows] == [one.words for one in found.spots]
    read = pq.read_table(io.BytesIO(as_parquet(table, {"twin.goal": found.words})))
    assert read.num_rows == len(found.spots)
    assert read.schema.field("days").metadata[b"unit"] == b"d"
    assert read.column("days").to_pylist() == [one.kpis.get("days") for one in found.spots]
    page = as_html("<name>", "twin recommend", (), "dark").decode()
    assert "<h1>&lt;name&gt;</h1>" in page
    assert "src=" not in page.partition("<script>")[0]


def test_untouched_sliders_leave_layouts_as_they_are(found) -> None:
    contenders = nearest(found.contest)
    assert stand(found.contest, contenders, {}) == tuple(one.now for one in contenders)


def test_a_slower_nic_takes_longer_and_a_loss_comes_on_top(found) -> None:
    contest = found.contest
    by_path = {one.path: one for one in main_levers(contest)}
    nic, loss = by_path["cluster.node.nic.bandwidth"], by_path["goodput"]
    contenders = nearest(contest)
    slower = {nic.name: (nic, nic.low)}
    lossy = slower | {loss.name: (loss, loss.high / 100)}
    days = [
        (stand(contest, contenders, moved)[0].kpis or {})["days"] or 0.0
        for moved in ({}, slower, lossy)
    ]
    assert 0.0 < days[0] < days[1] < days[2]


def test_stops_of_a_slider_go_through_what_is_now(found) -> None:
    for lever in main_levers(found.contest):
        values = stops(lever)
        assert lever.start in values
        assert values == sorted(values)
        assert (values[0], values[-1]) == (lever.low, lever.high)


def test_a_threshold_of_the_document_is_a_row_of_the_picture() -> None:
    wins = {"gpus": 64, "layout": "PP8"}
    row = {
        "lever": "NIC rate", "unit": "Gb/s", "range": [50.0, 1600.0], "now": 400.0,
        "source_range": [300.0, 400.0], "none": "",
        "flips": [{"value": 500.0, "side": "above", "wins": wins},
                  {"value": 100.0, "side": "below", "wins": None}],
    }  # fmt: skip
    made = runway(row)
    assert made.logarithmic
    assert [(one.value, one.wins) for one in made.flips] == [(100.0, ""), (500.0, "64 GPUs, PP8")]


def test_a_sweep_answers_every_point_and_refuses_what_is_no_field() -> None:
    made = work.swept(SweepAsked(PLAN, ("parallel.micro_batch=1,2", "cluster.nodes=8,16")), silent)
    assert isinstance(made, Sweep)
    assert len(made.rows) == 4
    wrong = work.swept(SweepAsked(PLAN, ("parallel.pipelin=1,2",)), silent)
    assert isinstance(wrong, Refusal)
    assert "did you mean `pipeline`" in wrong.text


def test_a_sweep_of_a_text_that_was_brought_is_of_that_text() -> None:
    text = f"extends: {FULL}\nparallel: {{micro_batch: 2}}\n"
    brought = Question("mine.yaml", text, (), 0)
    made = work.swept(SweepAsked(brought, ("cluster.nodes=8",)), silent)
    assert isinstance(made, Sweep)
    assert made.rows[0].outcome.hash == scenario_hash(load(FULL, ["parallel.micro_batch=2"]))


def test_work_that_is_stopped_ends_and_the_next_is_answered() -> None:
    pending = questions.explored(calls.endless, 1)
    deadline = time.monotonic() + 60
    while pending.progress.share < 0.5:
        assert time.monotonic() < deadline, "it never began"
        time.sleep(0.02)
    pending.stop()
    stopped = pending.within(0)
    assert isinstance(stopped, Stopped)
    assert stopped.percent == "50 %"
    stopped.again()
    assert questions.known(calls.endless, 1) is None
    counted = questions.explored(calls.counted, 3).within(60)
    assert isinstance(counted, tuple)
    assert counted[0] == 3


def button(app, label):
    return next(one for one in app.button if one.label == label)


def explored(opened, *plans):
    """The page once its first picture is there."""
    app = opened(*plans, page="explore")
    deadline = time.monotonic() + 120
    while not app.get("plotly_chart"):
        assert time.monotonic() < deadline, words(app)
        time.sleep(0.3)
        app = checked(app.run())
    return app


def part(app, name):
    (row,) = (one for one in app.segmented_control if one.label == "Section of Explore")
    row.set_value(name)
    return checked(app.run())


def test_the_first_paint_is_the_plan_over_sizes_with_its_command(opened) -> None:
    events(FULL)
    app = explored(opened, FULL)
    assert "Scaling of the plan's own layout" in [one.value for one in app.header]
    assert "percentage is the throughput per GPU" in words(app)
    assert f"twin recommend {FULL} --gpus 16,32,64,128,256 --target 485d --fixed-layout" in words(
        app
    )


def test_a_wrong_field_is_told_beside_it_and_nothing_can_be_searched(opened) -> None:
    events(FULL)
    app = explored(opened, FULL)
    box = next(one for one in app.text_input if one.label == "From, GPUs")
    box.set_value("63")
    app = checked(app.run())
    assert any("nearest 56 or 64" in one.value for one in app.error)
    assert button(app, "Search").disabled


def test_every_part_of_the_page_has_something_to_say(opened) -> None:
    events(FULL)
    app = part(explored(opened, FULL), "Sweep")
    assert "An example" in words(app)
    app = part(app, "Break-even points")
    assert "search first" in words(app)
    assert [one.label for one in app.select_slider]
    assert "As planned" in words(app)
    app = part(app, "Memory levers")
    assert "Trying single changes" in words(app) or app.get("plotly_chart")
    (row,) = (one for one in app.segmented_control if one.label == "Section of Explore")
    assert "Expert parallelism" not in row.options, "the model has no experts"


def test_failures_are_added_with_one_click(opened) -> None:
    events(FULL)
    app = opened(FULL, page="result", section="cost")
    assert "has no failures" in words(app)
    assert "Nothing has a price" in words(app) or "cost is unknown" in words(app)
    app = checked(button(app, "Add failures").click().run())
    assert "goodput={failures" in words(app)
    assert "Invalid" not in words(app)
