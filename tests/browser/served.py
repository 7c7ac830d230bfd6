"""The app as a child process, and a real Chromium to look at it: for tests and for screenshots."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

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
            [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}", *options]
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


def settle(page) -> None:  # noqa: ANN001  playwright is an extra
    """Wait until the app has said all that it has to say, events included, and charts are drawn."""
    page.get_by_test_id("stStatusWidget").wait_for(state="detached", timeout=PATIENCE_MS)
    page.get_by_text("Shown is the fast estimate").wait_for(state="detached", timeout=PATIENCE_MS)
    page.locator("[data-stale=true]").first.wait_for(state="detached", timeout=PATIENCE_MS)
    page.get_by_test_id("stSkeleton").first.wait_for(state="detached", timeout=PATIENCE_MS)
    for chart in page.locator(".js-plotly-plot").all():
        chart.locator(".main-svg").first.wait_for(timeout=PATIENCE_MS)
