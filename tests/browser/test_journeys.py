"""The main journeys in a real Chromium, light and dark, with a clean console."""

import time

import pytest

from tests.browser.accessibility import RULES, barriers
from tests.browser.served import (
    choose,
    edit,
    open_link,
    open_page,
    settle,
    shared_link,
    show,
)

pytestmark = pytest.mark.browser

FULL, SELECTIVE = "gpt-175b-64xa100-full", "gpt-175b-64xa100-selective"
K2 = "kimi-k2-256xh800"
ENGINE = "data.engine={gpus: 8, tensor: 8, precision: bf16}"
"""What a plan needs for the section Serving to have something to show."""
PAGES = [
    "Plan",
    "Plan/Catalog",
    "Result",
    "Result/Timeline",
    "Result/Memory",
    "Result/Network",
    "Result/Cost",
    "Result/Serving",
    "Result/Tables",
    "Compare",
    "Explore",
    "Explore/Better plan",
    "Explore/Sensitivity",
    "Evidence",
    "Evidence/Profiler trace",
]
CHARTS = {
    "Result": 1,
    "Result/Timeline": 3,
    "Result/Memory": 3,
    "Result/Network": 3,
    "Result/Serving": 3,
    "Compare": 3,
    "Explore": 1,
    "Explore/Sensitivity": 1,
    "Evidence": 3,
}
"""Figures that a page draws at least."""


def test_a_newcomer_finds_the_nearest_plan_that_fits_and_shares_it(visitor, address):
    page = visitor()
    sidebar = page.get_by_test_id("stSidebar")
    page.goto(f"{address}/plan")
    sidebar.get_by_text("Fits").wait_for()  # it comes last
    choose(page, "Open a scenario", FULL)
    page.wait_for_url(f"**plan={FULL}")
    page.get_by_role("heading", name=f"Plan: {FULL}").wait_for()
    settle(page, events=False)
    edit(page, "Tensor", "4")
    sidebar.get_by_text("Does not fit").wait_for()
    open_page(page, "Result", events=False)
    assert "Does not fit" in page.get_by_test_id("stAlert").first.inner_text()
    page.get_by_role("heading", name="The nearest plans that fit").wait_for()
    cards = page.get_by_role("button", name="Compare", exact=True)
    cards.first.wait_for()
    cards.first.click()
    page.get_by_role("heading", name="Key figures").wait_for()
    assert f"{FULL} (edited)" in page.get_by_test_id("stMain").inner_text()
    link = shared_link(page)

    friend = visitor()
    friend.goto(link)
    friend.get_by_role("heading", name="Key figures").wait_for()
    eventually(lambda: len(seen(page)["compared"]) == 4)  # baseline, plan, the one that fits
    eventually(lambda: seen(friend) == seen(page))


def eventually(holds):
    """Wait until something holds of two pages."""
    deadline = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < deadline, "it never held"
        time.sleep(0.2)


def seen(page):
    """Which plans a comparison shows, and what is changed in the open one."""
    sidebar = page.get_by_test_id("stSidebar")
    figures = page.get_by_test_id("stTable").filter(has_text="Key figure")
    return {
        "chosen": [box.input_value() for box in sidebar.get_by_role("combobox").all()],
        "changed": sidebar.locator("code").all_inner_texts(),
        "compared": figures.locator("th").all_inner_texts(),
    }


@pytest.mark.slow
def test_two_visitors_do_not_see_each_other_s_edits(visitor, address):
    link = f"{address}/?v=1&plan={FULL}"
    one, other = visitor(), visitor()
    for page in (one, other):
        open_link(page, link)
    edit(one, "Nodes", "16")
    one.get_by_text("cluster.nodes=16").first.wait_for()
    edit(other, "Tokens", "1T")
    other.get_by_text("train.tokens=1T").first.wait_for()
    assert other.get_by_text("cluster.nodes=16").count() == 0
    assert one.get_by_text("train.tokens=1T").count() == 0


@pytest.mark.slow
def test_a_file_that_is_no_text_is_refused_and_another_one_opens(visitor, address):
    page = visitor()
    open_link(page, f"{address}/?v=1&plan={FULL}")
    page.get_by_role("button", name="Upload a file").click()
    for name, data in (("no.yaml", b"\xff\xfe\x00"), ("mine.yaml", f"extends: {FULL}".encode())):
        file = {"name": name, "mimeType": "application/yaml", "buffer": data}
        page.locator("input[type=file]").set_input_files(file)
        if name == "no.yaml":
            page.get_by_text("is not text").wait_for()
    page.get_by_test_id("stPopoverBody").wait_for(state="detached")
    page.get_by_text("No edits").wait_for()


@pytest.mark.slow
def test_no_key_figure_is_cut_off_in_a_narrow_window(visitor, address):
    page = visitor("light", 900, 900)
    open_link(page, f"{address}/result?v=1&plan={FULL};cluster.nodes=16")
    page.get_by_test_id("stMetric").nth(7).wait_for()  # four in the bar, four on the page
    settle(page)
    assert page.evaluate(CUT_OFF) == []


CUT_OFF = """() => [...document.querySelectorAll('[data-testid=stMetric] *')]
    .filter(e => getComputedStyle(e).textOverflow == 'ellipsis' && e.scrollWidth > e.clientWidth)
    .map(e => e.innerText)"""


@pytest.mark.slow
def test_no_text_of_a_figure_is_cut_off_in_a_narrow_window(visitor, address):
    page = visitor("light", 900, 900)
    for name, plan in NARROW:
        open_link(page, f"{address}/{name}{'&' if '?' in name else '?'}v=1&plan={plan}")
        page.locator(".js-plotly-plot .barlayer .point").first.wait_for(state="attached")
        page.get_by_test_id("stProgress").first.wait_for(state="detached")
        settle(page)
        assert page.evaluate(BEYOND) == [], name


NARROW = (
    ("result", K2),
    ("result?section=memory", K2),
    ("result?section=network", K2),
    ("result?section=serving", f"{FULL};{ENGINE}"),
    ("evidence", K2),
    ("explore?section=sensitivity", K2),
    ("result", "kimi-k2-weight-update-16xh20"),
    ("result", "kimi-k2-rl-256xh800"),
)
"""Pages whose figures have bars, by their addresses and plans."""
BEYOND = """() => [...document.querySelectorAll('.js-plotly-plot .main-svg')].flatMap(svg => {
    const edge = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const box = text.getBoundingClientRect();
        return box.width && (box.left < edge.left - 1 || box.right > edge.right + 1);
    }).map(text => text.textContent);
})"""


@pytest.mark.slow
def test_an_old_link_to_a_page_that_is_a_section_now_opens_it(visitor, address):
    page = visitor()
    open_link(page, f"{address}/memory?v=1&plan={FULL};parallel.micro_batch=2")
    page.wait_for_url("**/result?**section=memory")
    page.get_by_role("heading", name="Memory over the step").wait_for()
    page.get_by_text("parallel.micro_batch=2").first.wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_drawn_in_light_and_dark(visitor, address, scheme):
    page = visitor(scheme, 1280, 900)
    page.goto(address)
    page.get_by_role("heading", name="Your question").wait_for()
    settle(page)
    assert barriers(page, *RULES[scheme]) == []
    open_link(page, f"{address}/?v=1&plan={FULL}&plan={SELECTIVE};{ENGINE}&baseline=0&open=1")
    ground = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(14, 17, 23)"}[scheme]
    assert hidden_pages(page) == 0
    for name in PAGES:
        open_page(page, name)
        if name in CHARTS:
            page.locator(".js-plotly-plot").nth(CHARTS[name] - 1).wait_for(state="attached")
            settle(page)
        assert page.get_by_text("bug in the twin").count() == 0
        assert page.evaluate(SIDEWAYS) == 0, f"{name} is wider than the window"
        assert barriers(page, *RULES[scheme]) == [], name
        assert page.evaluate(OVERLAPPING) == [], name


OVERLAPPING = """() => [...document.querySelectorAll('.js-plotly-plot .main-svg')].flatMap(svg =>
    ['.xtick text', '.ytick text'].flatMap(kind => {
        const boxes = [...svg.querySelectorAll(kind)].map(e => [e, e.getBoundingClientRect()])
            .filter(([, box]) => box.width);
        return boxes.flatMap(([e, a], at) => boxes.slice(at + 1)
            .filter(([, b]) => a.left < b.right - 2 && b.left < a.right - 2
                && a.top < b.bottom - 2 && b.top < a.bottom - 2)
            .map(([other]) => `${e.textContent} | ${other.textContent}`));
    }))"""
"""Labels of an axis that cover each other."""


def hidden_pages(page):
    """Links and sections of the navigation that are under "more"."""
    return page.get_by_test_id("stTopNav").get_by_text(" more").count()


SIDEWAYS = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.slow
def test_a_page_is_a_link_of_its_own_and_survives_a_reload(visitor, address):
    page = visitor()
    open_link(page, f"{address}/result?v=1&plan={FULL};parallel.micro_batch=2&section=memory")
    page.get_by_role("heading", name="Memory over the step").wait_for()
    page.reload()
    page.get_by_role("heading", name="Memory over the step").wait_for()
    page.get_by_text("parallel.micro_batch=2").first.wait_for()
    page.get_by_role("button", name="Revert").click()
    page.get_by_text("No edits.").wait_for()
    page.wait_for_timeout(2_000)  # the link has to be on its way no more
    page.go_back()
    page.get_by_text("parallel.micro_batch=2").first.wait_for()


@pytest.mark.slow
def test_the_timeline_s_window_can_be_moved_and_its_critical_path_shown(visitor, address):
    page = visitor()
    open_link(page, f"{address}/result?v=1&plan={FULL}&section=timeline")
    show(page, "Critical path")
    page.get_by_text("critical path").first.wait_for()
    assert page.locator(".js-plotly-plot .bars .point").count() > 100


@pytest.mark.slow
def test_a_weight_update_answers_and_refuses_in_the_words_of_the_command_line(visitor, address):
    page = visitor()
    open_link(page, f"{address}/?plan=kimi-k2-weight-update-16xh20")
    edit(page, "Free memory", "1GiB")
    page.get_by_text("TW156").first.wait_for()
    edit(page, "Free memory", "5GiB")
    page.get_by_test_id("stSidebar").get_by_text("Fits").wait_for()
    assert page.get_by_text("TW156").count() == 0
    assert page.get_by_text("bug in the twin").count() == 0
    assert page.evaluate(SIDEWAYS) == 0
