"""Seconds of each page in a new app without stored answers: from its link to the first paint, to
content and to rest, and from an edit to its answer: `python -m tests.browser.timings`. Pages are
visited in this order, each in a browser of its own."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Error, sync_playwright

from reference.studies.figure import launch
from tests.browser.served import PATIENCE_MS, edit, served, settle

_STEP: Final = "v=1&plan=gpt-175b-64xa100-full;train.tokens=1T"
_FOUR: Final = (
    "v=1&plan=kimi-k2-256xh800&plan=kimi-k2-256xh800;!name=b;parallel.pipeline=8"
    "&plan=kimi-k2-256xh800;!name=c;parallel.expert=8"
    "&plan=kimi-k2-256xh800;!name=d;train.tokens=1T;parallel.micro_batch=2&baseline=0&open=3"
)
PAGES: Final = {
    "first page": "",
    "Plan": f"plan?{_STEP};parallel.micro_batch=2",
    "Result": f"result?{_STEP};parallel.micro_batch=4",
    "Compare, four plans": f"compare?{_FOUR}",
    "Explore": f"explore?{_STEP};cluster.nodes=16",
    "Sensitivity": f"explore?{_STEP};cluster.nodes=32&section=sensitivity",
    "Evidence": f"evidence?{_STEP};cluster.nodes=64",
    "RL iteration": "result?v=1&plan=kimi-k2-rl-256xh800;rl.iteration.rewards=20s"
    ";rl.rollout.requests=3200",
    "Weight update": "result?v=1&plan=kimi-k2-weight-update-16xh20"
    ";weight_update.free_memory=20GiB;weight_update.bucket=2GiB",
}
"""The last edit of each is taken back, where there is one."""
CONTENT: Final = ", ".join(
    f"[data-testid=stMain] [data-testid={name}]"
    for name in ("stAlert", "stMetric", "stTable", "stPlotlyChart", "stTextInput", "stDataFrame")
)
"""What a visitor came for."""
_PAINTED: Final = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime / 1e3"
_ANSWER: Final = "[data-testid=stSidebar] [data-testid=stMetricValue]"
_ANSWERED: Final = f"""before => {{
    const one = document.querySelector('{_ANSWER}');
    return one && one.innerText !== before && !one.closest('[data-stale=true]');
}}"""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of one page, from its link; the last from an edit."""

    painted: float
    content: float
    settled: float
    answer: float


def timed(browser: Browser, link: str) -> Seconds:
    """Open a page, wait until all is drawn and simulated, and change something."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    begin = time.perf_counter()
    page.goto(link, wait_until="commit")
    page.locator(CONTENT).first.wait_for()
    content = time.perf_counter() - begin
    page.get_by_test_id("stProgress").first.wait_for(state="detached")
    settle(page)
    settled = time.perf_counter() - begin
    painted = page.evaluate(_PAINTED)
    answer = _edited(page)
    context.close()
    return Seconds(painted, content, settled, answer)


def _edited(page: Any) -> float:
    """Seconds from an edit to the answer to it."""
    is_new = urlsplit(page.url).path == "/"
    if not is_new:
        page.locator(_ANSWER).first.wait_for()
    begin = time.perf_counter()
    if is_new:
        edit(page, "Number of GPUs", "1024")
        page.get_by_text("1,024 GPUs take about").wait_for()
    else:
        before = page.locator(_ANSWER).first.inner_text()
        _revert(page)
        page.wait_for_function(_ANSWERED, arg=before)
    return time.perf_counter() - begin


def _revert(page: Any) -> None:
    """Take the last edit back. A click may meet the sidebar while it is drawn anew, and is lost;
    then it is made once more, as people do."""
    button = page.get_by_role("button", name="Revert")
    button.last.wait_for()  # the sidebar may be drawn once more after the page
    before = button.count()
    for patience_ms in (PATIENCE_MS / 6, PATIENCE_MS):
        button.last.click()
        with contextlib.suppress(Error):
            button.nth(before - 1).wait_for(state="detached", timeout=patience_ms)
            return


def main() -> None:
    """Print a line per page; or only of the pages that are named."""
    wanted = sys.argv[1:] or list(PAGES)
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder)) as address,
        sync_playwright() as playwright,
    ):
        browser = launch(playwright)
        _print("", "first paint", "content", "at rest", "answer to an edit")
        for name in wanted:
            found = timed(browser, f"{address}/{PAGES[name]}")
            _print(name, *(f"{one:.1f} s" for one in astuple(found)))
        browser.close()


def _print(name: str, *words: str) -> None:
    sys.stdout.write(f"{name:<22}{''.join(f'{word:>18}' for word in words)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
