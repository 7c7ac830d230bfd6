"""What pages need, loaded and tried before a visitor asks for it, while no page is being drawn."""

from __future__ import annotations

import gc
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from threading import Condition
from time import monotonic
from typing import Any, Final

from twin import ui
from twin.ui import explore

_FIRST: Final = (
    "twin.ui.router",
    "twin.ui.decided",
    "twin.ui.question",
    "twin.ui.explore.questions",
    "twin.ui.launch_file",
    "twin.ui.examples",
    "twin.kinds.step",
    "streamlit.material_icon_names",
    "PIL.Image",
)
"""What the first page needs, in its order."""
_PATIENCE: Final = 5.0
"""Seconds for which everything else waits for the first page."""
_REST: Final = 1.0
"""Seconds without a page that is drawn, before anything is done: two imports at once take twice as
long."""


@dataclass(slots=True)
class Drawing:
    """How many pages are being drawn, and when the last was done. Entered by each."""

    pages: int = 0
    ended: float | None = None
    changed: Condition = field(default_factory=Condition)

    def __enter__(self) -> None:
        with self.changed:
            self.pages += 1

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.pages -= 1
            self.ended = monotonic()
            self.changed.notify_all()

    def await_first(self, seconds: float) -> None:
        """Wait until a page has been drawn, at most so long."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended is not None, seconds)

    def await_rest(self, seconds: float) -> None:
        """Wait until for so long no page has been drawn."""
        with self.changed:
            while (left := self._left(seconds)) > 0:
                self.changed.wait(left)

    def _left(self, seconds: float) -> float:
        if self.pages:
            return seconds
        return 0.0 if self.ended is None else self.ended + seconds - monotonic()


DRAWING: Final = Drawing()


def warm() -> None:
    """Load the modules of the app and the libraries that draw, and answer a plan; then answer
    shipped plans elsewhere."""
    for name in _FIRST:
        import_module(name)
    _look_up()
    DRAWING.await_first(_PATIENCE)
    for do in _steps():
        DRAWING.await_rest(_REST)
        do()


def _steps() -> Iterator[Callable[[], Any]]:
    """What is done in turn, the least work before the most: a first answer to a question, the
    modules of all pages, whether a plan fits, what draws tables, the fields of a plan, an answer
    with its figures, and answers to shipped plans."""
    yield _ask
    yield _begin
    for package in (ui, explore):
        for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield partial(import_module, one.name)
    yield _check
    yield partial(import_module, "pandas")
    yield _fields
    yield _answer
    yield gc.freeze  # what is loaded stays: no collection need look at it again
    from twin.ui.answers import prepare  # noqa: PLC0415  loaded above, not with this module
    from twin.ui.scenarios import scenario_files  # noqa: PLC0415

    yield partial(prepare, scenario_files().first)


def _look_up() -> None:
    """What the first page looks up once: the catalog's GPUs, and the file of each module, for which
    Streamlit asks when it draws its first element."""
    from twin.explore.search.new_plan import known_gpus  # noqa: PLC0415  loaded above

    known_gpus()
    inspect.stack()


def _ask() -> None:
    """A first answer to the example's question."""
    from twin.explore.search.new_plan import first_answer, understood  # noqa: PLC0415  as above
    from twin.ui.question import example  # noqa: PLC0415

    first_answer(understood(example()[0]))


def _begin() -> None:
    """The process that simulates."""
    from twin.ui.answers import begin  # noqa: PLC0415  not with this module

    begin()


def _fields() -> None:
    """The fields of a plan, which its editor shows."""
    from twin.ui.editor import schema  # noqa: PLC0415  as above

    schema()


def _check() -> None:
    """Whether the plan that the app opens with fits: the first that a page says of any plan."""
    from twin.ui.answers import checked, question  # noqa: PLC0415  as above
    from twin.ui.scenarios import scenario_files  # noqa: PLC0415

    files = scenario_files()
    checked(question(files, files.first, None, ()))


def _answer() -> None:
    """The plan that the app opens with, simulated, and its figures."""
    from twin.answers import Run  # noqa: PLC0415  as above
    from twin.ui.answers import begun, question  # noqa: PLC0415
    from twin.ui.scenarios import scenario_files  # noqa: PLC0415

    files = scenario_files()
    run = begun(question(files, files.first, None, ())).within(_PATIENCE)
    if isinstance(run, Run):
        for view in run.kind.figures(run):
            view.draw("light", {one.key: one.default for one in view.controls})
