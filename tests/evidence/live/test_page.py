"""The section Live run: a run beside its prediction, and how often intervals held."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.evidence.live.made import noise, write_config, write_log
from tests.evidence.live.test_follower import slowed
from tests.ui.conftest import APP, PAGES, checked
from twin.evidence.live.follower import follow
from twin.evidence.live.seals import add, keep


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The app, its stored runs in the folder of the test."""
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path / "runs"))
    return AppTest.from_file(str(APP), default_timeout=120)


def shown(app: AppTest) -> AppTest:
    """The page, as it stands now."""
    app.query_params["section"] = "live-run"
    app.run()
    app.switch_page(str(PAGES / "evidence.py"))
    return checked(app.run())


def words(app: AppTest) -> str:
    """All text on the page."""
    kinds = (app.markdown, app.caption, app.warning, app.error, app.info, app.code)
    metrics = [f"{one.label} {one.value}" for one in app.metric]
    return "\n".join([one.value for kind in kinds for one in kind] + metrics)


def test_without_runs_and_seals_the_page_follows_an_example(app: AppTest) -> None:
    app = shown(app)
    text = words(app)
    assert "An example: the reference trained `kimi-k2-nano`" in text
    assert "type the folder of any run that writes `metrics.jsonl`" in text
    (chart,) = app.get("plotly_chart")
    assert "step 40 of 40" in chart.proto.alt
    assert "No prediction is sealed" in text


def test_a_run_is_drawn_beside_its_prediction(app: AppTest, tmp_path: Path, sealed) -> None:
    run = tmp_path / "runs" / "train" / "mine"
    write_config(run, 400)
    write_log(run, 2.0 * noise(200, sigma=0.03))
    one = sealed(2.05, 1.2, when=datetime.now(UTC) - timedelta(days=1))
    (run / "prediction.json").write_text(json.dumps(one.to_json()))
    app = shown(app)
    text = words(app)
    assert "inside its 80 % interval" in text
    assert "Seconds per step 2" in text
    assert "The step time has not changed" in text
    (chart,) = app.get("plotly_chart")
    assert "Step 200 of 400" in chart.proto.alt


def test_drift_comes_with_its_cause(app: AppTest, tmp_path: Path) -> None:
    slowed(tmp_path / "runs" / "train" / "mine", "second")
    text = words(shown(app))
    assert "Likely cause: stage 1" in text
    assert "(slower) from step 81 on" in text


def test_any_folder_can_be_typed_and_a_wrong_one_is_refused(
    app: AppTest, tmp_path: Path, sealed
) -> None:
    write_log(tmp_path / "else", [1.0] * 50)
    one, _, _ = keep(sealed(1.0))
    app = shown(app)
    (typed,) = (box for box in app.text_input if box.key == "tracked folder")
    app = checked(typed.set_value(str(tmp_path / "else")).run())
    assert "This run has no sealed prediction" in words(app)
    (chosen,) = (box for box in app.selectbox if box.key == "tracked seal")
    app = checked(chosen.set_value(f"{one.digest[:8]} small").run())
    assert "And over the whole run +0 %" in words(app)
    (typed,) = (box for box in app.text_input if box.key == "tracked folder")
    assert "TW340" in words(checked(typed.set_value("nowhere").run()))


def test_the_hit_rate_stands_with_what_it_was_taken_over(
    app: AppTest, tmp_path: Path, sealed
) -> None:
    for n, predicted in enumerate((1.0, 1.05, 3.0)):
        run = tmp_path / str(n)
        write_log(run, [1.0] * 50)
        one, _, _ = keep(sealed(predicted, 1.2, when=datetime.now(UTC) - timedelta(days=1)))
        follower = follow(run, one.digest)
        follower.look()
        found = follower.check()
        assert found is not None
        add(found)
    text = words(shown(app))
    assert "2 of 3 sealed intervals held what was measured: 66.7 %" in text
    assert "Of predictions 3" in text


@pytest.mark.slow
@pytest.mark.browser
def test_a_run_grows_while_it_is_looked_at(visitor, address, tmp_path: Path) -> None:
    """In a real browser: another step in the log is on the page within seconds."""
    run = tmp_path / "growing"
    write_config(run, 400)
    write_log(run, 2.0 * noise(200, sigma=0.03))
    page = visitor()
    page.goto(f"{address}/track")
    box = page.get_by_test_id("stTextInput").filter(has=page.get_by_text("Or any run's folder"))
    box.locator("input").first.fill(str(run))
    box.locator("input").first.press("Enter")
    page.get_by_text("Step 200 of 400").first.wait_for()
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    write_log(run, 2.0 * noise(230, sigma=0.03))
    page.get_by_text("Step 230 of 400").first.wait_for()
