"""One page to send: the verdict, the app's figures, what was assumed, and the scenario itself.

The page needs no network. `twin run REPORT.html` answers the scenario in it again.
"""

from __future__ import annotations

from twin.export.base import Stamp
from twin.export.html.page import page
from twin.export.html.pictures import pictures
from twin.runs import Run

SUFFIX = ".html"
PARTS = ("",)


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The page."""
    return {"": page(run, stamp, pictures(run)).encode()}
