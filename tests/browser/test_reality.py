"""The page Reality in a real browser: a dot that is clicked tells its row, which opens as a
plan."""

import pytest

from tests.browser.served import choose, open_link, open_page, settle

pytestmark = pytest.mark.browser


@pytest.mark.slow
def test_a_dot_tells_its_row_and_opens_its_scenario(visitor, address):
    page = visitor("dark", 1280, 1600)
    open_link(page, f"{address}/plan")
    open_page(page, "Evidence")
    page.get_by_text("held-out published training steps").first.wait_for()
    chart = page.locator(".js-plotly-plot").first
    choose(page, "Group by", "Source")
    settle(page)
    dots = chart.locator(".scatterlayer .trace .points path")
    dots.first.wait_for()
    assert dots.count() > 500
    box = dots.last.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    chart.locator(".hoverlayer .hovertext").get_by_text("measured").first.wait_for()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.get_by_role("button", name="Open its scenario as a plan").click()
    page.get_by_text("Fits").or_(page.get_by_text("Does not fit")).first.wait_for()
    page.get_by_test_id("stTextInput").first.wait_for()
    assert "%21text%3D" in page.url
