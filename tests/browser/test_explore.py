"""The page Explore in a real browser: a small search finds layouts, and one of them opens as a
scenario."""

import pytest

from tests.browser.served import edit, open_link, settle

pytestmark = pytest.mark.browser

FULL = "gpt-175b-64xa100-full"


@pytest.mark.slow
def test_a_search_finds_layouts_and_a_mark_opens_as_a_scenario(visitor, address):
    page = visitor("dark", 1280, 1700)
    open_link(page, f"{address}/explore?v=1&plan={FULL}")
    page.get_by_text("percentage is the throughput per GPU").wait_for()
    edit(page, "To, GPUs", "63")
    page.get_by_text("nearest 56 or 64").wait_for()
    edit(page, "From, GPUs", "64")
    edit(page, "To, GPUs", "64")
    page.get_by_text("nearest 56 or 64").wait_for(state="detached")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_text("layouts examined").wait_for()
    settle(page)
    chart = page.locator(".js-plotly-plot").first
    mark = chart.locator(".scatterlayer .trace .points path").last
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    chart.locator(".hoverlayer .hovertext").get_by_text("Memory left").first.wait_for()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    settle(page)
    page.get_by_role("button", name="Open as scenario").first.click()
    page.get_by_test_id("stTextInput").first.wait_for()
    page.wait_for_url("**plan=**plan=**")
    page.get_by_test_id("stSidebar").get_by_text("Fits").wait_for()
    assert page.get_by_text("bug in the twin").count() == 0
