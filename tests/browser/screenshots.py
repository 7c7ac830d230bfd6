"""The pictures of the documentation, as a newcomer's journey makes them: `make screenshots`.

Each page is drawn once, light at 1280 pixels and dark at 1920, into `docs/images`; and the four
journeys of `tests.browser.journeys`, whose seconds are printed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from reference.studies.figure import launch
from tests.browser.journeys import travel
from tests.browser.served import (
    PATIENCE_MS,
    ROOT,
    choose,
    edit,
    open_link,
    open_page,
    served,
    settle,
)
from tests.evidence.live.made import noise, write_log
from tests.evidence.measured.timelines import pipeline
from twin.answers import ask
from twin.evidence.live.seal import seal
from twin.loading import load, resolve
from twin.ui.links import encode
from twin.ui.workspace import Draft, Workspace

LINK = (
    "?v=1&plan=kimi-k2-256xh800-four-chunks;parallel.pipeline=8"
    "&plan=kimi-k2-256xh800-four-chunks;!name=8 stages, expert 32;parallel.pipeline=8"
    ";parallel.expert=32"
)
_PLAN: Final = "two-stages.yaml"
WITH_ENGINES = "?v=1&plan=kimi-k2-rl-256xh800"
CONTENT = {"new-plan": "stImage", "plan": "stTextInput", "catalog": "stDataFrame"}
"""What a page without charts shows when it is there."""
_COLOURS: Final = 64
"""Of a picture's palette."""
PAGES = {
    "new-plan": ("New plan", 1180, 0),
    "plan": ("Plan", 1180, 0),
    "catalog": ("Plan/Catalog", 1080, 0),
    "result": ("Result", 1500, 1),
    "timeline": ("Result/Timeline", 1500, 3),
    "memory": ("Result/Memory", 1500, 3),
    "network": ("Result/Network", 1180, 2),
    "compare": ("Compare", 1700, 4),
    "explore": ("Explore", 1500, 1),
    "assumptions": ("Explore/Sensitivity", 1700, 1),
    "reality": ("Evidence", 1700, 3),
    "measured": ("Evidence/Real run", 1700, 3),
    "track": ("Evidence/Live run", 1000, 1),
    "weight-update": ("Result", 1500, 3),
    "rl-iteration": ("Result", 1500, 2),
    "serving": ("Result/Serving", 1700, 3),
}
"""Pages and sections, the pixels of height that show what matters, and their figures."""
PLANS = {
    "plan": LINK,
    "track": LINK,
    "weight-update": "?v=1&plan=kimi-k2-weight-update-16xh20",
    "rl-iteration": WITH_ENGINES,
    "serving": WITH_ENGINES,
}
"""Links with which a picture begins; the others go on with the one before."""


def shoot(browser: Browser, address: str, folder: Path, scheme: str, width: int) -> None:
    """Every page in one look, saved as `PAGE-SCHEME.png`."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 1000})  # pyright: ignore[reportArgumentType]
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    for name, (title, height, charts) in PAGES.items():
        page.set_viewport_size({"width": width, "height": height})
        link = plan_of_run() if name == "measured" else PLANS.get(name)
        if link is not None:
            open_link(page, f"{address}/{link}")
        if name == "new-plan":
            page.goto(address)
        elif name == "explore":
            _search(page, address)
        else:
            open_page(page, title)
        page.get_by_test_id(CONTENT.get(name, "stPlotlyChart")).first.wait_for()
        if charts:
            page.locator(".js-plotly-plot").nth(charts - 1).wait_for(state="attached")
        settle(page)
        page.screenshot(path=folder / f"{name}-{scheme}.png")
        sys.stdout.write(f"{folder / f'{name}-{scheme}.png'}\n")
    context.close()


def _search(page: Page, address: str) -> None:
    """Search for layouts of a plan that fits."""
    open_link(page, f"{address}/explore?v=1&plan=gpt-175b-64xa100-full")
    page.get_by_text("percentage is the throughput per GPU").wait_for()
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_text("layouts examined").wait_for()


def journey(browser: Browser, address: str, folder: Path) -> None:
    """A newcomer's way from a shipped scenario to a plan that fits: `journey-N-WHAT.png`."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)

    def keep(what: str) -> None:
        settle(page)
        page.screenshot(path=folder / f"journey-{what}.png")
        sys.stdout.write(f"{folder / f'journey-{what}.png'}\n")

    open_link(page, f"{address}/plan")
    choose(page, "Open a scenario", "kimi-k2-256xh800-four-chunks")
    page.wait_for_url("**plan=kimi-k2-256xh800-four-chunks")
    keep("1-open")
    edit(page, "Pipeline", "8")
    page.get_by_text("Does not fit").first.wait_for()
    keep("2-change")
    open_page(page, "Result")
    page.get_by_role("button", name="Compare", exact=True).first.wait_for()
    keep("3-nearest-that-fits")
    page.get_by_role("button", name="Compare", exact=True).first.click()
    page.get_by_role("heading", name="Key figures").wait_for()
    keep("4-compare")
    page.get_by_role("button", name="Share").click()
    page.get_by_test_id("stPopoverBody").wait_for()
    keep("5-share")
    context.close()


def plan_of_run() -> str:
    """The link to the plan whose steps the made run has."""
    edits = ["parallel.micro_batch=2", "train.global_batch=8seq"]
    text = resolve(load(ROOT / "scenarios" / "reference" / "bare-pp2-gpipe-1gbps.yaml", edits))
    return f"?{urlencode(encode(Workspace((Draft(_PLAN, _PLAN, text),))), doseq=True)}"


def made_run(folder: Path) -> None:
    """A made run for the pages of real ones: two ranks, and a log that gets slower, beside a sealed
    prediction."""
    pipeline(folder)
    said = seal(ask(load("gpt-175b-64xa100-full"), cache=False))
    pace = np.where(np.arange(300) < 220, 1.02, 1.09)
    write_log(
        folder, said.seconds * pace * noise(300, sigma=0.01), tokens=said.prediction.tokens_per_step
    )
    (folder / "prediction.json").write_text(json.dumps(said.to_json()))


def main(folder: Path) -> None:
    """Draw everything."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as log:
        made_run(Path(log) / "runs" / "train" / "a-made-run")
        os.environ |= {"TWIN_RUNS": str(Path(log) / "runs"), "TWIN_SEALS": str(Path(log) / "seals")}
        _draw(Path(log), folder)


def _draw(log: Path, folder: Path) -> None:
    with (
        served(log) as address,
        sync_playwright() as playwright,
    ):
        browser = launch(playwright)
        journey(browser, address, folder)
        travel(browser, address, folder, log)
        shoot(browser, address, folder, "light", 1280)
        shoot(browser, address, folder, "dark", 1920)
        browser.close()
    for file in folder.glob("*.png"):
        reduce(file)


def reduce(file: Path) -> None:
    """Write a picture in a palette: a third of the bytes, and the same to the eye."""
    with Image.open(file) as picture:
        if picture.mode != "P":
            picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(
                file, optimize=True
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
