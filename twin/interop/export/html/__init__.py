"""One page to send: the verdict, the app's figures, what was assumed, and the scenario itself.

The page needs no network. `twin run REPORT.html` answers the scenario in it again.
"""

from __future__ import annotations

from twin.answers import Run
from twin.interop.export.base import Stamp
from twin.interop.export.html.page import page
from twin.interop.export.html.pictures import pictures

SUFFIX = ".html"
PARTS = ("",)


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The page."""
    return {"": page(run, stamp, pictures(run)).encode()}
