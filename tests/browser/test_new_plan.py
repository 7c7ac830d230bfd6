"""From a config.json to a decision to send, in a real browser, without YAML."""

from pathlib import Path

import pytest

from tests.browser.served import edit, settle

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CONFIG = Path(__file__).parents[1] / "interop" / "importing" / "configs" / "qwen3-4b.json"


def test_a_planner_brings_a_configuration_and_takes_a_decision_page_along(
    visitor, address, tmp_path
):
    page = visitor("light", 1024, 900)
    page.goto(address)
    page.get_by_role("heading", name="Example answer").wait_for()
    page.get_by_role("radio", name="My config.json").click()
    page.locator("input[type=file]").set_input_files(CONFIG)
    page.get_by_text("4.02B parameters").wait_for()
    settle(page)
    edit(page, "Number of GPUs", "100")
    page.get_by_text("Nearest 96 or 104").wait_for()
    edit(page, "Number of GPUs", "16")
    page.get_by_text("16 GPUs take about").wait_for()
    page.get_by_role("button", name="Find the plan").click()
    page.get_by_role("heading", name="What must be true").wait_for()
    with page.expect_download() as taken:
        page.get_by_role("button", name="Decision page").click()
    taken.value.save_as(tmp_path / "decision.html")
    sent = (tmp_path / "decision.html").read_text(encoding="utf-8")
    assert "16 GPUs" in sent
    assert "twin new qwen3-4b.json --gpu" in sent
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Open the plan").click()
    page.get_by_test_id("stSidebar").get_by_text("Fits").first.wait_for()
    assert page.get_by_text("bug in the twin").count() == 0
