"""The app as a child process, and what its visitors do: for tests and for screenshots."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
PATIENCE_MS = 180_000
DRAWN = """() => [...document.querySelectorAll('[data-testid=stPlotlyChart]')]
    .every(e => e.querySelector('.main-svg'))"""
"""True in a page whose charts are all drawn, beyond the edge of the window too."""
AT_REST = "[data-testid=stApp][data-test-script-state=notRunning]"
"""The app while no page of it is being made; its sign of running comes half a second late."""


@contextmanager
def served(folder: Path, words: Sequence[str] = ()) -> Generator[str]:
    """The address of the app, served as `make app` serves it; `folder` takes its log and its stored
    runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--server.headless=true", "--server.fileWatcherType=none"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "twin.ui", "run", "app.py", f"--server.port={port}", *options]
            + (["--", *words] if words else []),
            cwd=os.environ.get("TWIN_APP_FOLDER", ROOT),
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"TWIN_RUNS": str(folder / "runs"), **os.environ},
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _await_health(url, server)
            yield url
        finally:
            server.terminate()
            server.wait(10)


def _await_health(url: str, server: subprocess.Popen[bytes]) -> None:
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


def settle(page, *, events: bool = True) -> None:
    """Wait until the app has said all that it has to say, by `events` too, and charts are drawn."""
    page.get_by_test_id("stStatusWidget").wait_for(state="detached", timeout=PATIENCE_MS)
    page.locator(AT_REST).wait_for(timeout=PATIENCE_MS)
    if events:
        for words in ("is being simulated", "are being simulated"):
            page.get_by_text(words).first.wait_for(state="detached", timeout=PATIENCE_MS)
    page.locator("[data-stale=true]").first.wait_for(state="detached", timeout=PATIENCE_MS)
    page.wait_for_function(DRAWN, timeout=PATIENCE_MS)


def open_link(page, link: str) -> None:
    """Follow a link, and wait for all of the page."""
    page.goto(link)
    page.get_by_test_id("stSidebar").get_by_test_id("stSelectbox").first.wait_for()
    settle(page)


def open_page(page, name: str, *, events: bool = True) -> None:
    """Choose a page of the navigation, and a section of it where the name has one: `Result/Memory`.
    A click may meet the navigation while it is drawn anew, and is lost; then it is made once more,
    as people do."""
    name, _, section = name.partition("/")
    path = PATHS.get(name, f"/{name.lower()}")
    for patience_ms in (PATIENCE_MS / 6, PATIENCE_MS):
        links = page.get_by_test_id("stTopNavLink")
        links.filter(has=page.get_by_text(name, exact=True)).click()
        if _arrives(page, path, patience_ms):
            break
    else:
        raise TimeoutError(f"the page {name} did not open")
    settle(page, events=events)
    if section:
        row = page.get_by_test_id("stMain").get_by_test_id("stButtonGroup").first
        row.get_by_role("radio", name=section, exact=True).click()
        settle(page, events=events)


PATHS = {"New plan": "/"}
"""Addresses of the pages whose file is not called as they are."""


def _arrives(page, path: str, patience_ms: float) -> bool:
    deadline = time.monotonic() + patience_ms / 1e3
    while urlsplit(page.url).path != path:
        if time.monotonic() > deadline:
            return False
        page.wait_for_timeout(100)
    return True


def edit(page, label: str, text: str) -> None:
    """Type into a field, and leave it. What a label says of an edit, in brackets, may follow."""
    named = re.compile(rf"^{re.escape(label)}( \(.*\))?$")
    box = page.get_by_test_id("stTextInput").filter(has=page.get_by_text(named))
    box.locator("input").first.fill(text)
    box.locator("input").first.press("Enter")


def choose(page, label: str, option: str) -> None:
    """Choose from a list."""
    box = page.get_by_test_id("stSelectbox").filter(has=page.get_by_text(label, exact=True))
    box.locator("input").fill(option)
    page.get_by_role("option", name=option, exact=True).click()


def show(page, label: str) -> None:
    """Switch something on."""
    page.get_by_test_id("stCheckbox").filter(has_text=label).locator("label").first.click()
    settle(page)


def shared_link(page) -> str:
    """The link that the button Share gives out."""
    page.get_by_role("button", name="Share").click()
    link = page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").inner_text()
    page.keyboard.press("Escape")
    return "".join(link.split())
