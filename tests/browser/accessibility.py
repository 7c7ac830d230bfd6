"""What axe-core finds on a page that keeps people out: serious and critical findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import axe_playwright_python

_AXE: Final = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
_RUN: Final = """rules => axe.run({exclude: [['.js-plotly-plot']]},
    {resultTypes: ['violations'], ...(rules && {runOnly: rules})})"""
"""Charts are left out: every one has its finding and its numbers as text beside it."""

RULES: Final[dict[str, tuple[str, ...]]] = {"light": (), "dark": ("color-contrast",)}
"""What axe looks for in each theme: all, and what differs between the two."""


def barriers(page: Any, *rules: str) -> list[str]:
    """Serious and critical findings, each with its elements; of some rules, or of all."""
    page.evaluate(_AXE)
    found = page.evaluate(_RUN, list(rules) or None)["violations"]
    return [
        f"{one['id']}: {node['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
