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


@pytest.fixture(params=["light", "dark"])
def page(request, chromium, address):
    """The app, opened and drawn; whatever the console or the network complain of fails the test."""
    context = chromium.new_context(
        color_scheme=request.param, viewport={"width": 1440, "height": 1000}
    )
    page = context.new_page()
    complaints = []
    page.on("console", lambda line: line.type == "error" and complaints.append(line.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda failed: complaints.append(f"failed: {failed.url}"))
    page.goto(address)
    settle(page)
    yield page
    context.close()
    assert complaints == []


def settle(page):
    """Wait until the app has run and its charts are drawn."""
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE_MS)
    page.locator('[data-testid="stStatusWidget"]').wait_for(state="detached", timeout=PATIENCE_MS)


def pick(page, *plans):
    """Pick these plans and no others."""
    box = page.get_by_test_id("stSidebar").get_by_test_id("stMultiSelect").first
    box.get_by_label("Clear all").click()
    for plan in plans:
        box.locator("input").fill(plan)
        page.get_by_role("option", name=plan, exact=True).click()
    page.keyboard.press("Escape")


def test_a_planner_reads_the_verdicts_first(page, tmp_path):
    boxes = page.get_by_test_id("stAlert")
    assert boxes.first.inner_text().find("Fits with") >= 0
    assert boxes.first.bounding_box()["y"] < 400
    assert page.locator(".js-plotly-plot").count() >= 4
    page.screenshot(path=tmp_path / "verdicts.png")
    assert (tmp_path / "verdicts.png").stat().st_size > 50_000


def test_a_planner_compares_two_plans_and_edits_one(page, tmp_path):
    pick(page, FULL, SELECTIVE)
    page.get_by_role("heading", name=SELECTIVE).first.wait_for(timeout=PATIENCE_MS)
    settle(page)
    assert page.get_by_text(", better").first.is_visible()
    page.get_by_role("button", name="Run").click()
    settle(page)
    page.screenshot(path=tmp_path / "compared.png", full_page=True)


def test_a_wrong_edit_is_shown_beside_the_answer_that_stands(page, tmp_path):
    pick(page, FULL, SELECTIVE)
    page.get_by_role("heading", name=SELECTIVE).first.wait_for(timeout=PATIENCE_MS)
    settle(page)
    page.get_by_label("Tensor parallel").last.fill("7")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("Impossible or invalid").wait_for(timeout=PATIENCE_MS)
    assert page.get_by_text("Fits with").count() == 1
    page.screenshot(path=tmp_path / "wrong.png")
