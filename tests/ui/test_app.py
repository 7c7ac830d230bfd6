"""The app as its user drives it: pick, edit, run, compare; nothing is lost when a plan is wrong."""

from pathlib import Path

import pytest
from streamlit.proto.Metric_pb2 import Metric
from streamlit.testing.v1 import AppTest

from twin.errors import TwinError
from twin.loading import load
from twin.plan import plan
from twin.report import verdict
from twin.ui.answers import Answer, answer, stamp
from twin.ui.state import edit_key

APP = Path(__file__).parents[2] / "app.py"
FULL, SELECTIVE = "gpt-175b-64xa100-full", "gpt-175b-64xa100-selective"
K2 = "kimi-k2-2048xh800"


def opened(*plans):
    """The app with these plans picked."""
    app = AppTest.from_file(str(APP), default_timeout=60)
    if plans:
        app.session_state["picked"] = list(plans)
    return checked(app.run())


def checked(app):
    assert not app.exception, app.exception[0].message
    return app


def edited(app, name, path, value):
    """The app after one field was edited and Run pressed."""
    key = edit_key(name, path)
    kinds = (app.number_input, app.text_input, app.selectbox, app.multiselect)
    (widget,) = (one for kind in kinds for one in kind if one.key == key)
    widget.set_value(value)
    (run,) = (button for button in app.button if button.label == "Run")
    return checked(run.click().run())


def verdicts(app):
    """Every verdict shown, with its plan fitting or not."""
    return {box.value: box.type for box in (*app.success, *app.error)}


def sentence(name, *edits):
    outcome = answer(name, edits, stamp())
    assert isinstance(outcome, Answer)
    return verdict(outcome.report)


@pytest.fixture(scope="module")
def first():
    return opened()


def test_the_first_visit_answers_the_flagship_beside_a_smaller_cluster(first):
    assert list(first.multiselect(key="picked").value) == [K2, "kimi-k2-512xh800"]
    assert [box.value for box in first.success] == [sentence(K2), sentence("kimi-k2-512xh800")]
    assert not first.error


def test_figures_state_their_findings(first):
    charts = first.get("plotly_chart")
    assert len(charts) == 6
    assert all(chart.proto.alt for chart in charts)


def test_deltas_are_shown_against_the_baseline_only(first):
    deltas = [metric.delta for metric in first.metric]
    assert deltas[:4] == ["", "", "", ""]
    assert all(" %, better" in delta or " %, worse" in delta for delta in deltas[4:])


def test_good_changes_are_green_and_bad_ones_red_whichever_way_they_point(first):
    colours = {"": Metric.GRAY, "better": Metric.GREEN, "worse": Metric.RED}
    for metric in first.metric:
        assert metric.proto.color == colours[metric.delta.rpartition(" ")[2]]
    arrows = {(one.proto.direction, one.proto.color) for one in first.metric if one.delta}
    assert (Metric.UP, Metric.RED) in arrows, "a longer step is bad"
    assert (Metric.UP, Metric.GREEN) in arrows, "a higher MFU is good"


def test_a_plan_compared_with_itself_shows_no_change():
    app = opened(FULL)
    (copy,) = (button for button in app.button if button.label == "Add a copy to edit")
    app = checked(copy.click().run())
    assert app.multiselect(key="picked").value == [FULL, f"{FULL} (copy)"]
    assert {metric.delta for metric in app.metric} == {"", "no change"}


def test_an_edit_changes_the_answer_of_its_plan_only():
    app = opened(FULL, SELECTIVE)
    before = [sentence(FULL), sentence(SELECTIVE)]
    assert [box.value for box in app.success] == before
    app = edited(app, SELECTIVE, "cluster.node.nvlink.bandwidth", "100GB/s")
    slower = sentence(SELECTIVE, "cluster.node.nvlink.bandwidth=100GB/s")
    assert slower != before[1]
    assert [box.value for box in app.success] == [before[0], slower]
    assert any(f"{SELECTIVE}, edited" in text.value for text in app.markdown)


def test_a_wrong_edit_shows_what_the_command_line_shows_and_keeps_the_rest():
    app = edited(opened(FULL, SELECTIVE), SELECTIVE, "parallel.tensor", 7)
    with pytest.raises(TwinError) as error:
        plan(load(SELECTIVE, ["parallel.tensor=7"]))
    assert str(error.value) in [code.value for code in app.code]
    assert sentence(FULL) in verdicts(app)
    assert app.number_input(key=edit_key(SELECTIVE, "parallel.tensor")).value == 7
    mended = edited(app, SELECTIVE, "parallel.tensor", 8)
    assert sentence(SELECTIVE) in verdicts(mended)


def test_a_bad_unit_shows_its_hint():
    app = edited(opened(FULL), FULL, "cluster.node.nic.bandwidth", "400Gb")
    assert any("TW013" in code.value and "hint" in code.value for code in app.code)


def test_without_recomputation_kimi_k2_does_not_fit_and_the_app_says_so():
    app = edited(opened(K2), K2, "memory.recompute", [])
    (box,) = app.error
    assert box.value.startswith("Does not fit")
    assert "activations" in box.value
    assert app.metric, "the figures are shown all the same"


def test_a_plan_that_does_not_fit_is_never_praised_in_green():
    app = edited(opened(FULL, SELECTIVE), SELECTIVE, "memory.recompute", [])
    app = edited(app, SELECTIVE, "parallel.micro_batch", 8)
    assert any(box.value.startswith("Does not fit") for box in app.error)
    assert {one.proto.color for one in app.metric} == {Metric.GRAY}


def test_no_plan_picked_asks_for_some():
    app = opened(FULL)
    app = checked(app.multiselect(key="picked").set_value([]).run())
    assert "Pick two or more plans" in app.info[0].value


def test_a_plan_put_aside_comes_back_with_its_edits():
    app = edited(opened(FULL, SELECTIVE), SELECTIVE, "parallel.micro_batch", 2)
    app = checked(app.multiselect(key="picked").set_value([FULL]).run())
    app = checked(app.multiselect(key="picked").set_value([FULL, SELECTIVE]).run())
    assert app.number_input(key=edit_key(SELECTIVE, "parallel.micro_batch")).value == 2


def test_a_shorter_window_and_communication_lanes_draw_more_detail():
    app = opened(FULL)
    (window,) = app.slider
    app = checked(window.set_value((0.0, window.max / 10)).run())
    app = checked(app.segmented_control(key="timeline lanes").set_value("all").run())
    assert any("Thin lanes below each stage" in text.value for text in app.caption)


def test_every_answer_can_be_had_again_from_the_command_line():
    app = edited(opened(FULL), FULL, "cost.gpu_hour", "1.5USD")
    assert f"twin run {FULL} --set cost.gpu_hour=1.5USD" in [code.value for code in app.code]
