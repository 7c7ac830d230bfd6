"""The app in a real Chromium, light and dark: what a planner sees, with a clean console."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
CHROMIUM = Path(os.environ.get("TWIN_CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 60_000
FULL, SELECTIVE = "gpt-175b-64xa100-full", "gpt-175b-64xa100-selective"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of the app, served as `make app` serves it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("app") / "log").open("w+")
    options = ["--server.headless=true", "--server.fileWatcherType=none"]
    server = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}", *options],
        cwd=ROOT,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await_health(url, server)
        yield url
    finally:
        server.terminate()
        server.wait(10)
        log.close()


def await_health(url, server):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert server.poll() is None, "the app's server ended"
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.1)
    raise TimeoutError("the app did not start in 30 s")


@pytest.fixture(scope="module")
def chromium():
    """A real browser; its absence fails where TWIN_REQUIRE_BROWSER says so, and skips elsewhere."""
    if not CHROMIUM.exists():
        missing = f"no Chromium at {CHROMIUM}"
        if os.environ.get("TWIN_REQUIRE_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(request, chromium, address):
    """The app, opened and drawn, light unless a test asks for dark. Whatever the console complains
    of, and every request that leaves the machine, fails the test."""
    context = chromium.new_context(
        color_scheme=getattr(request, "param", "light"), viewport={"width": 1440, "height": 1000}
    )
    page = context.new_page()
    complaints = []
    page.on("console", lambda line: line.type == "error" and complaints.append(line.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: outside(asked.url, address) and complaints.append(asked.url))
    page.goto(address)
    settle(page)
    yield page
    context.close()
    assert complaints == []


def outside(url, address):
    return not url.startswith((address, "data:", "blob:"))


def settle(page):
    """Wait until the app has answered, all of it, and its charts are drawn."""
    page.get_by_test_id("stAlert").first.wait_for(timeout=PATIENCE_MS)
    page.get_by_test_id("stStatusWidget").wait_for(state="detached", timeout=PATIENCE_MS)
    assert page.get_by_test_id("stException").count() == 0
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE_MS)


def pick(page, *plans):
    """Pick these plans and no others."""
    box = page.get_by_test_id("stSidebar").get_by_test_id("stMultiSelect").first
    box.get_by_label("Clear all").click()
    for plan in plans:
        box.locator("input").fill(plan)
        page.get_by_role("option", name=plan, exact=True).click()
    page.keyboard.press("Escape")
    page.get_by_role("heading", name=plans[-1]).first.wait_for(timeout=PATIENCE_MS)
    settle(page)


def run(page, label, text):
    """Edit a field of the plan picked last, and run."""
    page.get_by_label(label, exact=True).last.fill(text)
    page.get_by_role("button", name="Run").click()


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_a_planner_reads_the_verdicts_first(page, request, tmp_path):
    verdicts = page.get_by_test_id("stAlert")
    assert verdicts.first.inner_text().count("Fits with") == 1
    assert verdicts.first.bounding_box()["y"] < 400
    ground = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    expected = {"light": "rgb(255, 255, 255)", "dark": "rgb(14, 17, 23)"}
    assert ground == expected[request.node.callspec.params["page"]]
    page.screenshot(path=tmp_path / "verdicts.png")
    assert (tmp_path / "verdicts.png").stat().st_size > 50_000


CUT = """() => [...document.querySelectorAll('[data-testid=stMetric] *')]
    .filter(e => e.clientWidth && e.scrollWidth > e.clientWidth + 1
                 && getComputedStyle(e).overflow !== 'visible')
    .map(e => e.textContent)"""
SCROLLED = """() => [...document.querySelectorAll('.js-plotly-plot .legend .scrollbar')]
    .filter(e => Number(e.getAttribute('height')) > 0).length"""


def test_no_key_figure_is_cut_and_no_legend_scrolls_however_narrow_the_page(page):
    pick(page, FULL, SELECTIVE)
    for plans in (2, 3):
        for width in (800, 1280, 1440):
            page.set_viewport_size({"width": width, "height": 1000})
            page.wait_for_timeout(500)
            assert page.get_by_test_id("stMetric").count() == 4 * plans
            assert page.evaluate(CUT) == []
            assert page.evaluate(SCROLLED) == 0
        if plans == 2:
            page.get_by_role("button", name="Add a copy to edit").click()
            page.get_by_role("heading", name="(copy)").wait_for(timeout=PATIENCE_MS)
            page.get_by_test_id("stMetric").nth(11).wait_for(timeout=PATIENCE_MS)


def test_every_figure_is_drawn_with_its_bars(page):
    charts = page.locator(".js-plotly-plot")
    page.get_by_text("Provenance", exact=True).scroll_into_view_if_needed()
    charts.last.locator(".main-svg").first.wait_for(timeout=PATIENCE_MS)
    assert charts.count() >= 5
    for at in range(5):
        assert charts.nth(at).locator(".bars .point").count() > 0


def test_a_planner_compares_two_plans_and_edits_one(page, tmp_path):
    pick(page, FULL, SELECTIVE)
    assert page.get_by_text(", better").first.is_visible()
    run(page, "NVLink per GPU", "100GB/s")
    page.get_by_role("heading", name=f"{SELECTIVE}, edited").wait_for(timeout=PATIENCE_MS)
    settle(page)
    field = page.get_by_text("cluster.node.nvlink.bandwidth").first
    field.wait_for(timeout=PATIENCE_MS)
    page.screenshot(path=tmp_path / "compared.png")


def test_a_wrong_edit_is_shown_beside_the_answer_that_stands(page, tmp_path):
    pick(page, FULL, SELECTIVE)
    run(page, "Tensor parallel", "7")
    page.get_by_text("Impossible or invalid").wait_for(timeout=PATIENCE_MS)
    settle(page)
    assert page.get_by_test_id("stCode").first.inner_text().count("TW102") == 1
    assert page.get_by_text("Fits with").count() == 1
    page.screenshot(path=tmp_path / "wrong.png")
