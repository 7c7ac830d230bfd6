"""The page Weight update: an answer for every shipped update, edits, and what is wrong with one."""

from __future__ import annotations

import pytest

from tests.ui.test_pages import words
from twin.ui.known import known
from twin.ui.shelves import CHOICES, field_of

PAGE = "weight_update"
SMALL, H800 = "kimi-k2-weight-update-16xh20", "kimi-k2-weight-update-256xh800"


def chosen(app, name):
    (box,) = (one for one in app.sidebar.selectbox if one.label == "Weight update")
    return box.set_value(name).run()


def edited(app, path, value, name=SMALL):
    kinds = (app.text_input, app.segmented_control)
    key = f"{name}|{path}#"
    (widget,) = (one for kind in kinds for one in kind if str(one.key).startswith(key))
    return widget.set_value(value).run()


def test_updates_and_training_runs_are_told_apart() -> None:
    assert SMALL in known().updates
    assert SMALL not in known().files
    assert "kimi-k2-256xh800" in known().files


def test_the_first_page_leads_to_weight_updates(opened) -> None:
    text = words(opened("kimi-k2-256xh800"))
    assert "Weight updates" in text
    assert "Kimi K2 weight update on 256 H800" in text


@pytest.mark.parametrize("name", [SMALL, H800])
def test_the_page_answers_a_shipped_update(opened, name) -> None:
    app = chosen(opened(page=PAGE), name)
    assert not app.exception
    assert "Fits with" in words(app)
    assert "Broadcasts take" in words(app)
    assert f"twin run {name}" in words(app)
    labels = [one.label for one in app.sidebar.metric]
    assert labels[:2] == ["Update", "Gathering metadata"]


def test_every_figure_has_its_finding_as_text(opened) -> None:
    app = chosen(opened(page=PAGE), SMALL)
    charts = app.get("plotly_chart")
    assert len(charts) == 3
    assert all(chart.proto.alt for chart in charts)
    assert "A third stage makes it" in words(app)


def test_an_edit_changes_the_answer_and_the_command(opened) -> None:
    app = chosen(opened(page=PAGE), SMALL)
    before = app.sidebar.metric[0].value
    app = edited(app, "cluster.node.host.pcie.bandwidth", "126GB/s")
    app = edited(app, "weight_update.stages", "three")
    assert app.sidebar.metric[0].value != before
    assert "--set weight_update.stages=three" in words(app)


def test_what_is_wrong_is_said_in_the_words_of_the_command_line(opened) -> None:
    app = edited(chosen(opened(page=PAGE), SMALL), "weight_update.event", "start")
    assert "TW154" in words(app)
    app = edited(app, "weight_update.storage", "{per_node: 10GB/s, total: 100GB/s}")
    assert "have started after" in words(app) or "instance" in words(app)
    assert "TW154" not in words(app)


def test_a_link_to_a_weight_update_opens_its_page_with_its_edits(opened) -> None:
    app = opened(f"{H800};weight_update.stages=three", "kimi-k2-256xh800")
    assert not app.warning
    assert app.sidebar.selectbox[0].value == H800
    assert "--set weight_update.stages=three" in words(app)
    assert app.query_params["update"] == f"{H800};weight_update.stages=three"
    assert app.query_params["plan"] == "kimi-k2-256xh800"


def test_a_link_to_a_preset_opens_the_page_of_weight_updates(opened) -> None:
    app = opened(SMALL)
    assert not app.warning
    assert app.sidebar.selectbox[0].value == SMALL


def test_a_link_to_a_training_run_as_an_update_says_what_is_wrong(opened) -> None:
    app = opened("kimi-k2-256xh800", update="kimi-k2-256xh800")
    assert "is no weight update" in app.warning[0].value


def test_a_weight_update_can_be_opened_from_the_first_page(opened) -> None:
    app = opened("kimi-k2-256xh800")
    (box,) = (one for one in app.selectbox if one.label == "Open a weight update")
    app = box.set_value(H800).run()
    assert app.sidebar.selectbox[0].value == H800
    assert "Fits with" in words(app)


def test_an_edit_back_to_what_the_scenario_says_is_none(opened) -> None:
    app = edited(chosen(opened(page=PAGE), SMALL), "weight_update.stages", "three")
    app = edited(app, "weight_update.stages", "two")
    assert app.query_params["update"] == SMALL


def test_the_catalog_has_every_axis_that_the_command_line_has() -> None:
    assert {"schedules", "optimizers", "routings"} <= set(CHOICES)
    assert field_of("routings") == "train.routing.kind"
