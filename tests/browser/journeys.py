"""Four people on their way through the app, timed and photographed:
`python -m tests.browser.journeys [FOLDER [NAME ...]]`. Each prints its steps with their seconds, in
a new app without stored answers.

- planner: a model of one's own, 8T tokens, 60 days, to a decision page
- launch: a launch script that lacks memory, to the flags that fit
- rl: split or colocated, to the answer side by side
- phone: a link to a decision, and a comparison, on 390 pixels
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, sync_playwright

from reference.studies.figure import launch
from tests.browser.served import ROOT, edit, open_page, served, settle

SCRIPT: Final = ROOT / "twin" / "ui" / "example_launch.sh"
EXAMPLE: Final = ROOT / "twin" / "ui" / "example.json"
CONFIG: Final = ROOT / "tests" / "interop" / "importing" / "configs" / "qwen3-235b-a22b.json"
OWN: Final = {"num_experts": 144, "num_hidden_layers": 90}
"""What makes the published model one of 252B parameters that nobody has published."""
SIDEWAYS: Final = "document.documentElement.scrollWidth <= innerWidth"
_LONGEST_MS: Final = 900_000
_PHONE: Final = 390
"""Pixels of a telephone's width."""
_MOST_PIXELS: Final = 1_600
"""Height of a picture."""


class Journey:
    """A visitor with a stopwatch and a camera."""

    def __init__(self, browser: Browser, name: str, folder: Path, width: int = 1280) -> None:
        self.name, self.folder, self.width = name, folder, width
        self.page: Page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
        self.page.set_default_timeout(_LONGEST_MS)
        self.begin = self.last = time.perf_counter()
        self.steps: list[tuple[str, float]] = []

    def step(self, words: str, picture: str = "") -> None:
        """End a step; a picture is no part of the next one."""
        now = time.perf_counter()
        self.steps.append((words, now - self.last))
        sys.stdout.write(f"{self.name:<8} {words:<52} {now - self.last:7.1f} s\n")
        sys.stdout.flush()
        if picture:
            self._photograph(picture)
        self.last = time.perf_counter()

    def _photograph(self, what: str) -> None:
        settle(self.page, events=False)
        height = self.page.get_by_test_id("stMain").evaluate("e => e.scrollHeight")
        size = {"width": self.width, "height": min(_MOST_PIXELS, max(900, height))}
        self.page.set_viewport_size(size)  # pyright: ignore[reportArgumentType]
        settle(self.page, events=False)
        self.page.wait_for_timeout(500)
        assert self.page.evaluate(SIDEWAYS), f"{what} is wider than {self.width}"
        self.page.screenshot(path=self.folder / f"journey-{self.name}-{what}.png")
        self.page.set_viewport_size({"width": self.width, "height": 900})

    def end(self) -> float:
        """Seconds of all steps."""
        total = sum(seconds for _, seconds in self.steps)
        sys.stdout.write(f"{self.name:<8} {'in all':<52} {total:7.1f} s\n")
        self.page.context.close()
        return total


def planner(one: Journey, address: str, config: Path) -> None:
    """From a config.json to a decision to send."""
    page = one.page
    page.goto(address)
    page.get_by_role("heading", name="Example answer").wait_for()
    one.step("first page: an example answer")
    page.get_by_role("radio", name="My config.json").click()
    page.locator("input[type=file]").set_input_files(config)
    page.get_by_text("252B parameters").wait_for()
    edit(page, "Training tokens", "8T")
    edit(page, "Deadline, days", "60")
    page.get_by_text("do it in 60 days").first.wait_for()
    one.step("own model, 8T tokens, 60 days: first answer")
    page.get_by_role("button", name="Find the plan").click()
    page.get_by_role("heading", name="What must be true").wait_for()
    one.step("the plan, simulated, with two alternatives", "decision")
    with page.expect_download() as taken:
        page.get_by_role("button", name="Decision page").click()
    assert "What must be true" in Path(taken.value.path()).read_text(encoding="utf-8")
    one.step("decision page downloaded")


def launched(one: Journey, address: str) -> None:
    """From a launch script to the flags that fit."""
    page = one.page
    page.goto(address)
    page.get_by_role("button", name="Import a launch or a recipe").click()
    page.get_by_text("or paste it here").wait_for()
    one.step("first page to the section Import")
    page.locator("input[type=file]").set_input_files(SCRIPT)
    page.get_by_text("example_launch: 70.6B parameters").wait_for()
    page.get_by_text("stage 0 needs").first.wait_for()
    one.step("script uploaded: read, and why it does not fit", "script")
    page.get_by_role("button", name="Open the plan").click()
    page.get_by_role("heading", name="The nearest plans that fit").wait_for()
    page.get_by_role("button", name="Use this plan").first.wait_for()
    settle(page)
    one.step("nearest plans that fit, with what each costs", "nearest")
    open_page(page, "Result/Memory")
    page.get_by_role("heading", name="Peak of every stage").wait_for()
    one.step("what holds how much on which stage", "memory")
    open_page(page, "Result/Summary")
    page.get_by_role("button", name="Use this plan").first.click()
    page.get_by_test_id("stSidebar").get_by_text("Fits").first.wait_for()
    settle(page)
    one.step("one of them taken and simulated: fits")
    page.get_by_test_id("stSidebar").get_by_role("button", name="Export").click()
    with page.expect_download() as taken:
        page.get_by_role("button", name="Launch script (Megatron-LM)").click()
    flags = Path(taken.value.path()).read_text(encoding="utf-8")
    assert "--context-parallel-size 4" in flags
    one.step("flags of Megatron-LM downloaded")


def modes(one: Journey, address: str) -> None:
    """Split or colocated?"""
    page = one.page
    page.goto(address)
    page.get_by_role("button", name="RL: split or colocated?").click()
    page.get_by_role("heading", name="Compare").wait_for()
    one.step("first page to Compare")
    page.get_by_text("Shortest: Colocated").wait_for()
    settle(page)
    one.step("three modes simulated: which is best, and why", "modes")


def on_a_phone(one: Journey, address: str) -> None:
    """A link to a decision, and a comparison, at 390 pixels."""
    page = one.page
    asked = json.loads(EXAMPLE.read_text(encoding="utf-8"))["question"]
    said = {key: text for key, text in asked.items() if text}
    page.goto(f"{address}/?{urlencode(said)}")
    page.get_by_text("GPUs finish in").first.wait_for()
    first = page.get_by_role("heading", name="Example answer")
    box, form = first.bounding_box(), page.get_by_role("heading", name="Your question")
    below = form.bounding_box()
    assert box is not None
    assert below is not None
    assert box["y"] < below["y"], "the answer comes first"
    one.step("link to the decision: days, cost, intervals", "decision")
    page.get_by_text("What was assumed").click()
    one.step("what was assumed")
    page.goto(f"{address}/compare?v=1&plan=gpt-175b-64xa100-full")
    page.get_by_role("heading", name="Inputs that differ").wait_for()
    settle(page)
    one.step("Compare of two plans", "compare")
    page.goto(f"{address}/result?v=1&plan=kimi-k2-256xh800&section=network")
    page.get_by_text("Show the group of the first rank").first.wait_for()
    settle(page)
    for button in page.locator("[data-testid=stMain] [data-testid=stButtonGroup] button").all():
        box = button.bounding_box()
        assert box is not None
        assert box["x"] >= 0, f"{button.inner_text()} is cut off"
        assert box["x"] + box["width"] <= _PHONE, f"{button.inner_text()} is cut off"
    one.step("Network: every group can be chosen", "network")


def own_config(folder: Path) -> Path:
    """The config.json of the planner."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(CONFIG.read_text(encoding="utf-8")) | OWN))
    return file


def travel(
    browser: Browser, address: str, folder: Path, scratch: Path, names: Collection[str] = ()
) -> None:
    """The named journeys, else all, one after the other; pictures into `folder`."""
    ways: dict[str, Callable[[Journey], object]] = {
        "launch": lambda one: launched(one, address),
        "rl": lambda one: modes(one, address),
        "phone": lambda one: on_a_phone(one, address),
        "planner": lambda one: planner(one, address, own_config(scratch)),
    }
    for name, way in ways.items():
        if names and name not in names:
            continue
        one = Journey(browser, name, folder, _PHONE if name == "phone" else 1280)
        way(one)
        one.end()


def main(folder: Path | None, names: Collection[str]) -> None:
    """Travel in a new app; without a folder the pictures go."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        served(Path(scratch)) as address,
        sync_playwright() as playwright,
    ):
        browser = launch(playwright)
        pictures = folder or Path(scratch)
        pictures.mkdir(parents=True, exist_ok=True)
        travel(browser, address, pictures, Path(scratch), names)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None, sys.argv[2:])
