"""The section Real run: a real run beside the open plan's prediction of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.evidence.measured.timelines import pipeline
from tests.ui.test_pages import words
from twin.ui import real_run as real
from twin.ui.scenarios import scenario_files

PAGE = "evidence"
FULL = "gpt-175b-64xa100-full"


@pytest.fixture
def piped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs where the app looks for them, the older one with other times."""
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path))
    for at, (name, slower) in enumerate((("older", 2.0), ("newer", 1.0))):
        run = pipeline(tmp_path / "train" / name, slower=slower)
        for file in (run / "timeline").iterdir():
            os.utime(file, (at, at))
    return tmp_path / "train"


def box(app, label):
    return next(one for one in (*app.selectbox, *app.number_input) if one.label == label)


def test_the_newest_run_is_shown_beside_the_open_plan(opened, piped) -> None:
    app = opened(FULL, page=PAGE, section="real-run")
    assert box(app, "Run").options == ["newer", "older"]
    text = words(app)
    assert "Step 3 took 161 ms" in text
    assert "The open plan is not the plan of this run" in text
    assert "model: kimi-k2-nano in the run" in text
    assert f"twin measured {piped / 'newer'} {FULL}" in text


@pytest.mark.usefixtures("piped")
def test_every_figure_has_its_finding_as_text_and_every_action_a_row(opened) -> None:
    app = opened(FULL, page=PAGE, section="real-run")
    charts = app.get("plotly_chart")
    assert len(charts) == 3
    assert all(chart.proto.alt for chart in charts)
    assert "They differ most in" in words(app)
    rows = {name for one in app.table for name in one.value.iloc[:, 0]}
    assert {"F", "B", "optimizer", "message", "gradient_norm"} <= rows


@pytest.mark.usefixtures("piped")
def test_another_run_and_another_step_can_be_chosen(opened) -> None:
    app = box(opened(FULL, page=PAGE, section="real-run"), "Run").set_value("older").run()
    assert app.query_params["run"] == "older"
    before = words(app)
    app = box(app, "Step").set_value(5).run()
    assert "Step 5 took" in words(app)
    assert "Step 5 took" not in before


@pytest.mark.usefixtures("piped")
def test_a_link_opens_its_run(opened) -> None:
    app = opened(FULL, page=PAGE, section="real-run", run="older")
    assert box(app, "Run").value == "older"
    assert app.query_params["run"] == "older"


@pytest.mark.usefixtures("piped")
def test_a_link_can_make_the_app_read_nothing_else(opened, tmp_path) -> None:
    pipeline(tmp_path / "secret")
    app = opened(FULL, page=PAGE, section="real-run", run=str(tmp_path / "secret"))
    assert box(app, "Run").value == "newer"


@pytest.mark.usefixtures("piped")
def test_a_step_that_is_not_there_is_said_in_the_words_of_the_command_line(opened) -> None:
    app = box(opened(FULL, page=PAGE, section="real-run"), "Step").set_value(77).run()
    assert "TW334" in words(app)


def test_a_damaged_file_is_said_with_its_line(opened, piped) -> None:
    with (piped / "newer" / "timeline" / "rank-00000.jsonl").open("a") as file:
        file.write("oops\n{}\n")
    text = words(opened(FULL, page=PAGE, section="real-run", run="newer"))
    assert "TW331" in text
    assert "rank-00000.jsonl:" in text


def test_what_is_written_meanwhile_is_shown(opened, piped) -> None:
    app = opened(FULL, page=PAGE, section="real-run", run="newer")
    assert "of 4 steps" in words(app)
    pipeline(piped / "newer", steps=9)
    assert "of 8 steps" in words(app.run())


def test_without_a_run_the_page_shows_an_example_and_how_to_bring_ones_own(
    opened, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path))
    app = opened(FULL, page=PAGE, section="real-run")
    text = words(app)
    assert "An example: the reference trained `kimi-k2-nano`" in text
    assert "--measured runs/train/nano" in text
    assert "The open plan is not the plan of this run" not in text
    assert len(app.get("plotly_chart")) == 3


def test_a_run_that_the_app_was_opened_with_is_no_scenario(piped, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["app.py", FULL, str(piped / "older")])
    assert next(iter(real.runs())) == "older"
    assert list(real.runs()) == ["older", "newer"]
    assert scenario_files().first == FULL
    assert not any("older" in name for name in scenario_files().files)
