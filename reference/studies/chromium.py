"""The Chromium that draws, for pictures of studies and for whoever tests pages in a browser: where
it lies, and how it starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

MISSING: Final = "Chromium (or its path in TWIN_CHROMIUM)"
"""What to install where `executable` finds none."""
_ARGUMENTS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""Root may start it, in a container without a GPU, and it asks nobody for anything."""


def executable() -> str | None:
    """The file that TWIN_CHROMIUM names, else the one on the path; None: there is none."""
    wanted = os.environ.get("TWIN_CHROMIUM", "/usr/bin/chromium")
    return wanted if Path(wanted).is_file() else shutil.which("chromium")


def launch(playwright: Playwright) -> Browser:
    """A browser without a window. Asserts that there is one to start: Playwright would otherwise
    look for one of its own."""
    path = executable()
    assert path is not None, MISSING
    return playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
