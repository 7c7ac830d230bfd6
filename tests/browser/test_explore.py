"""The page Explore in a real browser: a small search finds layouts, and one of them opens as a
scenario."""

import pytest

from tests.browser.accessibility import RULES, barriers
from tests.browser.journeys import SIDEWAYS
from tests.browser.served import edit, open_link, open_page, settle

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


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_better_plan_is_searched_and_read_in_a_narrow_window(visitor, address, scheme):
    page = visitor(scheme, 1024, 900)
    few = f"{FULL};train.global_batch=64seq"
    open_link(page, f"{address}/explore?v=1&plan={few}&section=better-plan")
    search = page.get_by_role("button", name="Find a better plan")
    if search.count():
        search.click()
    page.get_by_text("faster: a step takes").wait_for()
    page.get_by_text("edits and").first.wait_for()
    settle(page)
    assert barriers(page, *RULES[scheme]) == []
    assert page.evaluate(SIDEWAYS)
    assert page.evaluate(SCROLLED) == []
    open_page(page, "Result")
    page.get_by_role("button", name="All better plans").wait_for()
    assert page.get_by_role("button", name="Try edits").count() == 0
    assert barriers(page, *RULES[scheme]) == []


SCROLLED = """() => [...document.querySelectorAll('[data-testid=stMain] *')].filter(e =>
    ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1)
    .map(e => e.outerHTML.slice(0, 200))"""
"""What is wider than its place, and has to be scrolled to be read."""
