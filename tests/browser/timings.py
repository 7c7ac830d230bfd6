"""Seconds of each page from its link to content and to rest, in a new app without stored answers:
`python -m tests.browser.timings`. Pages are visited in this order, each in a browser of its own."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from reference.studies.figure import launch
from tests.browser.served import PATIENCE_MS, served, settle

_STEP: Final = "v=1&plan=gpt-175b-64xa100-full"
_FOUR: Final = (
    "v=1&plan=kimi-k2-256xh800&plan=kimi-k2-256xh800;!name=b;parallel.pipeline=8"
    "&plan=kimi-k2-256xh800;!name=c;parallel.expert=32"
    "&plan=kimi-k2-256xh800;!name=d;parallel.micro_batch=2&baseline=0"
)
PAGES: Final = {
    "first page": "",
    "Plan": f"plan?{_STEP}",
    "Result": f"result?{_STEP};parallel.micro_batch=2",
    "Compare, four plans": f"compare?{_FOUR}",
    "Explore": f"explore?{_STEP}",
    "Sensitivity": f"explore?{_STEP}&section=sensitivity",
    "Evidence": f"evidence?{_STEP}",
    "RL iteration": "result?v=1&plan=kimi-k2-rl-256xh800",
    "Weight update": "result?v=1&plan=kimi-k2-weight-update-16xh20",
}
CONTENT: Final = ", ".join(
    f"[data-testid=stMain] [data-testid={name}]"
    for name in ("stAlert", "stMetric", "stTable", "stPlotlyChart", "stTextInput", "stDataFrame")
)
"""What a visitor came for."""


def timed(browser: Browser, link: str) -> tuple[float, float]:
    """Seconds to the first content, and until all is drawn and simulated."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    begin = time.perf_counter()
    page.goto(link, wait_until="commit")
    page.locator(CONTENT).first.wait_for()
    first = time.perf_counter() - begin
    page.get_by_test_id("stProgress").first.wait_for(state="detached")
    settle(page)
    last = time.perf_counter() - begin
    context.close()
    return first, last


def main() -> None:
    """Print a line per page."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder)) as address,
        sync_playwright() as playwright,
    ):
        browser = launch(playwright)
        for name, link in PAGES.items():
            first, last = timed(browser, f"{address}/{link}")
            sys.stdout.write(f"{name:<22}{first:6.1f} s{last:8.1f} s\n")
            sys.stdout.flush()
        browser.close()


if __name__ == "__main__":
    main()
