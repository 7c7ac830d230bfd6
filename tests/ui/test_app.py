"""The app as its user drives it: pick, edit, run, compare; nothing is lost when a plan is wrong."""

import os
import sys
from pathlib import Path

import pytest
from streamlit.proto.Metric_pb2 import Metric
from streamlit.testing.v1 import AppTest

from twin.errors import TwinError
from twin.loading import load
from twin.plan import plan
from twin.report import verdict
from twin.ui import answers
from twin.ui.answers import Answer, Question, ask, stamp
from twin.ui.editor import MOST
from twin.ui.fields import FIELDS
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


def drafted(app, name, path, value):
    """The app after one field was edited, and nothing pressed."""
    field(app, name, path).set_value(value)
    return checked(app.run())


def field(app, name, path):
    """The widget of a field of a plan."""
    key = edit_key(name, path)
    kinds = (app.number_input, app.text_input, app.selectbox, app.multiselect)
    (widget,) = (one for kind in kinds for one in kind if one.key == key)
    return widget


def pressed(app, label):
    (button,) = (button for button in app.button if button.label == label)
    return checked(button.click().run())


def edited(app, name, path, value):
    """The app after one field was edited and Run pressed."""
    return pressed(drafted(app, name, path, value), "Run")


def badges(app):
    """How many plans, and the sidebar, say that edits wait for Run."""
    return sum("edited, press Run" in text.value for text in app.markdown)


def verdicts(app):
    """Every verdict shown, with its plan fitting or not."""
    return {box.value: box.type for box in (*app.success, *app.error)}


def sentence(name, *edits):
    outcome = ask(Question(name, edits, stamp())).within(60)
    assert isinstance(outcome, Answer)
    return verdict(outcome.report)


@pytest.fixture(scope="module")
def first():
    return opened()


def test_the_first_visit_answers_the_flagship_beside_a_smaller_cluster(first):
    assert list(first.multiselect(key="picked").value) == [K2, "kimi-k2-512xh800"]
    assert [box.value for box in first.success] == [sentence(K2), sentence("kimi-k2-512xh800")]
    assert not first.error
    assert first.main[0].value == "Compare plans", "nothing stands above the title"


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
    app = pressed(app, "Add a copy to edit")
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
    assert "- **Tensor parallel**: " in headings(app)
    assert field(app, SELECTIVE, "parallel.tensor").value == 7
    mended = edited(app, SELECTIVE, "parallel.tensor", 8)
    assert sentence(SELECTIVE) in verdicts(mended)


def test_a_bad_unit_shows_its_hint():
    app = edited(opened(FULL), FULL, "cluster.node.nic.bandwidth", "400Gb")
    assert any("TW013" in code.value and "hint" in code.value for code in app.code)
    assert f"What is wrong with {FULL}, edited" in headings(app)
    assert "- **NIC per GPU**: " in headings(app)


def headings(app):
    return "\n".join(text.value for text in app.markdown)


@pytest.mark.parametrize("path", [one.path for one in FIELDS if one.kind == "count"])
def test_a_count_below_one_or_beyond_reason_cannot_be_entered(first, path):
    widget = field(first, K2, path)
    assert (widget.min, widget.max) == (1, MOST)


def test_a_fault_of_the_twin_is_said_in_short_and_takes_no_other_answer_along(monkeypatch, caplog):
    right = answers.plan

    def wrong(scenario):
        if scenario.name == load(SELECTIVE).name:
            raise KeyError("not a thing")
        return right(scenario)

    monkeypatch.setattr(answers, "plan", wrong)
    app = edited(opened(FULL), FULL, "cost.gpu_hour", "3.25USD")
    app = checked(app.multiselect(key="picked").set_value([FULL, SELECTIVE]).run())
    app = edited(app, SELECTIVE, "cost.gpu_hour", "3.25USD")
    (box,) = app.success
    assert box.value == sentence(FULL, "cost.gpu_hour=3.25USD")
    assert any("This is a bug in the twin" in one.value for one in app.error)
    assert "Traceback" not in headings(app) + "".join(one.value for one in app.error)
    assert "Traceback" in caplog.text


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


def test_changes_against_a_baseline_that_does_not_fit_are_not_judged():
    app = edited(opened(FULL, SELECTIVE), FULL, "memory.recompute", [])
    app = edited(app, FULL, "parallel.micro_batch", 8)
    deltas = [one for one in app.metric if one.delta]
    assert deltas
    assert {one.proto.color for one in deltas} == {Metric.GRAY}
    assert not any("better" in one.delta or "worse" in one.delta for one in deltas)
    assert any("the baseline does not fit" in text.value for text in app.caption)
    (unable,) = (one.value for one in app.warning if "cannot run" in one.value)
    assert f"**{FULL}, edited** (the baseline)" in unable
    assert SELECTIVE not in unable


def test_an_edit_waits_for_run_and_says_so():
    before = [box.value for box in opened(FULL, SELECTIVE).success]
    app = drafted(opened(FULL, SELECTIVE), SELECTIVE, "parallel.micro_batch", 2)
    assert [box.value for box in app.success] == before
    assert badges(app) == 2, "the sidebar, and the card of that plan"
    app = pressed(app, "Run")
    assert badges(app) == 0
    assert app.success[1].value == sentence(SELECTIVE, "parallel.micro_batch=2")


def test_a_copy_takes_edits_along_that_were_not_run():
    app = drafted(opened(FULL), FULL, "parallel.micro_batch", 2)
    app = pressed(app, "Add a copy to edit")
    assert field(app, f"{FULL} (copy)", "parallel.micro_batch").value == 2
    assert [box.value for box in app.success] == [
        sentence(FULL),
        sentence(FULL, "parallel.micro_batch=2"),
    ]


def test_a_plan_put_aside_comes_back_with_edits_that_were_not_run():
    app = drafted(opened(FULL, SELECTIVE), SELECTIVE, "parallel.micro_batch", 2)
    app = checked(app.multiselect(key="picked").set_value([FULL]).run())
    assert badges(app) == 0
    app = checked(app.multiselect(key="picked").set_value([FULL, SELECTIVE]).run())
    assert field(app, SELECTIVE, "parallel.micro_batch").value == 2
    assert badges(app) == 2


def test_a_file_is_opened_under_its_name_and_followed_as_it_changes(tmp_path, monkeypatch):
    file = tmp_path / "mine.yaml"
    file.write_text(f"extends: {FULL}\nparallel: {{micro_batch: 2}}\n")
    monkeypatch.setattr(sys, "argv", [str(APP), str(file)])
    app = opened()
    assert app.multiselect(key="picked").value == ["mine.yaml"]
    assert [box.value for box in app.success] == [sentence(str(file))]
    assert field(app, "mine.yaml", "parallel.micro_batch").value == 2
    assert f"twin run {file}" in [code.value for code in app.code]
    file.write_text(f"extends: {FULL}\nparallel: {{micro_batch: 4}}\n")
    os.utime(file, ns=(0, 0))
    app = checked(app.run())
    assert field(app, "mine.yaml", "parallel.micro_batch").value == 4
    assert [box.value for box in app.success] == [sentence(FULL, "parallel.micro_batch=4")]
    assert badges(app) == 0


def test_no_plan_picked_asks_for_some():
    app = opened(FULL)
    app = checked(app.multiselect(key="picked").set_value([]).run())
    assert "Pick two or more plans" in app.info[0].value


def test_a_plan_put_aside_comes_back_with_its_edits():
    app = edited(opened(FULL, SELECTIVE), SELECTIVE, "parallel.micro_batch", 2)
    app = checked(app.multiselect(key="picked").set_value([FULL]).run())
    app = checked(app.multiselect(key="picked").set_value([FULL, SELECTIVE]).run())
    assert field(app, SELECTIVE, "parallel.micro_batch").value == 2


def test_a_shorter_window_and_communication_lanes_draw_more_detail():
    app = opened(FULL)
    (window,) = app.slider
    app = checked(window.set_value((0.0, window.max / 10)).run())
    app = checked(app.segmented_control(key="timeline lanes").set_value("all").run())
    assert any("Thin lanes below each stage" in text.value for text in app.caption)


def test_every_answer_can_be_had_again_from_the_command_line():
    app = edited(opened(FULL), FULL, "cost.gpu_hour", "1.5USD")
    assert f"twin run {FULL} --set cost.gpu_hour=1.5USD" in [code.value for code in app.code]
