"""What pages need, loaded and begun before a visitor asks for it."""

from __future__ import annotations

import gc
import pkgutil
from importlib import import_module
from threading import Event
from typing import Final

from twin import ui

_FIRST: Final = (
    "twin.ui.router",
    "twin.ui.decided",
    "twin.ui.question",
    "twin.ui.explore.questions",
)
"""What the first page needs, in its order."""
DRAWN: Final = Event()
"""Set once a page is drawn."""
_PATIENCE: Final = 5.0
"""Seconds for which all other modules wait for that: two imports at once take twice as long."""


def warm() -> None:
    """Load the modules of the app and the libraries that draw, then answer shipped plans."""
    others = [one.name for one in pkgutil.iter_modules(ui.__path__, "twin.ui.") if not one.ispkg]
    others += [f"twin.ui.explore.{name}" for name in ("exports", "search", "sweep")]
    for name in _FIRST:
        import_module(name)
    DRAWN.wait(_PATIENCE)
    for name in ("pandas", *others):
        import_module(name)
    gc.freeze()  # what is loaded stays: no collection need look at it again
    from twin.ui.answers import prepare  # noqa: PLC0415  loaded above, not with this module
    from twin.ui.scenarios import scenario_files  # noqa: PLC0415

    prepare(scenario_files().first)
