"""The pictures of the documentation, as a newcomer's journey makes them: `make screenshots`.

Each page is drawn once, light at 1280 pixels and dark at 1920, into `docs/images`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.browser.served import (
    ARGUMENTS,
    CHROMIUM,
    PATIENCE_MS,
    ROOT,
    open_link,
    open_page,
    served,
    settle,
)

LINK = (
    "?v=1&plan=kimi-k2-256xh800;parallel.pipeline=8"
    "&plan=kimi-k2-256xh800;!name=kimi-k2-256xh800, 16 stages;memory.recompute=[full]"
)
PAGES = {
    "plan": 1180,
    "result": 1500,
    "memory": 1300,
    "network": 1180,
    "compare": 1500,
    "catalog": 1080,
    "assumptions": 1700,
}
"""The pages with the pixels of height that show what matters."""


def shoot(browser: Browser, address: str, folder: Path, scheme: str, width: int) -> None:
    """Every page in one look, saved as `PAGE-SCHEME.png`."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 1000})  # pyright: ignore[reportArgumentType]
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    open_link(page, f"{address}/{LINK}")
    for name, height in PAGES.items():
        page.set_viewport_size({"width": width, "height": height})
        open_page(page, name.capitalize())
        page.get_by_test_id("stProgress").first.wait_for(state="detached")
        settle(page)
        page.screenshot(path=folder / f"{name}-{scheme}.png")
        sys.stdout.write(f"{folder / f'{name}-{scheme}.png'}\n")
    context.close()


def main(folder: Path) -> None:
    """Draw everything."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as log,
        served(Path(log)) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        shoot(browser, address, folder, "light", 1280)
        shoot(browser, address, folder, "dark", 1920)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
