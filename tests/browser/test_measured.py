"""The page Measured in a real browser: a run that the app was opened with, beside its plan."""

import pytest

from tests.browser.served import open_link, open_page, served, settle
from tests.evidence.measured.timelines import pipeline

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of an app that was opened with a scenario and a run."""
    folder = tmp_path_factory.mktemp("opened")
    run = pipeline(folder / "piped")
    with served(folder, ["gpt-175b-64xa100-full", str(run)]) as url:
        yield url


@pytest.mark.slow
def test_a_run_that_the_app_was_opened_with_is_drawn_beside_its_plan(visitor, address):
    page = visitor("dark")
    open_link(page, f"{address}/plan")
    open_page(page, "Evidence/Real run")
    page.get_by_role("heading", name="Provenance").wait_for()
    page.get_by_text("Step 3 took 161 ms").first.wait_for()
    chart = page.get_by_role("figure").filter(has_text="rank 1, stage 1, measured")
    chart.wait_for()
    settle(page)
    # Not by the number of bars: at this zoom they are slices, and communication makes these longer.
    assert page.get_by_text("Pipeline send").count() == 0
    page.get_by_text("With communication").click()
    page.get_by_text("Pipeline send").first.wait_for()
