"""One app for all browser tests; whatever the console complains of, and every
request that leaves the machine, fails the test."""

from __future__ import annotations

import pytest

from tests.browser.served import PATIENCE_MS, served


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """The address of the app, served as `make app` serves it."""
    with served(tmp_path_factory.mktemp("app")) as url:
        yield url


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
