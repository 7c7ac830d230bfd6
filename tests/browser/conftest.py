"""One app and one Chromium for all browser tests; whatever the console complains of, and every
request that leaves the machine, fails the test."""

from __future__ import annotations

import os

import pytest

from tests.browser.served import ARGUMENTS, CHROMIUM, PATIENCE_MS, served


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """The address of the app, served as `make app` serves it."""
    with served(tmp_path_factory.mktemp("app")) as url:
        yield url


@pytest.fixture(scope="session")
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
def visitor(chromium, address):
    """Opens pages, each in a browser of its own: no cookies, no storage shared."""
    contexts, complaints = [], []

    def visit(scheme="light", width=1440, height=1000):
        context = chromium.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda line: _is_complaint(line) and complaints.append(line.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda asked: _leaves(asked.url, address) and complaints.append(asked.url)
        )
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


def _is_complaint(line) -> bool:
    """Errors, but for one of streamlit's own: under a page's address it looks for its server below
    that address first."""
    return line.type == "error" and "/_stcore/" not in line.location.get("url", "")


def _leaves(url: str, address: str) -> bool:
    return not url.startswith((address, "data:", "blob:"))
