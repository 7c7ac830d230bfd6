"""The app under AppTest: opened by its link, its stored runs in a folder of the test run."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from twin.answers import Run
from twin.ui import answers
from twin.ui.answers import Question, reply
from twin.ui.background import Stopped
from twin.ui.scenarios import stamp

APP = Path(__file__).parents[2] / "app.py"
PAGES = APP.parent / "twin" / "ui" / "pages"


@pytest.fixture(scope="session", autouse=True)
def _own_runs(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    before = os.environ.get("TWIN_RUNS")
    os.environ["TWIN_RUNS"] = str(tmp_path_factory.mktemp("runs"))
    yield
    os.environ.pop("TWIN_RUNS")
    if before is not None:
        os.environ["TWIN_RUNS"] = before


@pytest.fixture(scope="session", autouse=True)
def _patient() -> None:
    """Pages wait for their simulations, however busy the machine is."""
    answers.GLANCE = answers.MOMENT = 120


@pytest.fixture(scope="session")
def opened() -> Callable[..., AppTest]:
    """Opens the app on a page, by a link to plans."""

    def open_app(*plans: str, page: str = "plan", **query: str) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=120)
        if plans:
            app.query_params["v"] = "1"
            app.query_params["plan"] = list(plans)
        for key, value in query.items():
            app.query_params[key] = value
        if page not in ("plan", "new") or (page == "plan" and not plans):
            app.run()
            app.switch_page(str(PAGES / f"{page}.py"))
        return checked(app.run())

    return open_app


@pytest.fixture
def freed() -> Generator[None]:
    """Simulations that a test has begun are stopped at its end, and forgotten."""
    yield
    for one in [*answers._SIMULATIONS.results.values()]:
        one.stop()
        if isinstance(stopped := one.within(0), Stopped):
            stopped.again()


def checked(app: AppTest) -> AppTest:
    """The app after a run that drew something, and failed nowhere."""
    assert not app.exception, app.exception[0].message
    assert not any("bug in the twin" in one.value for one in app.error)
    return app


def events(name: str, *sets: str) -> Run:
    """The answer by events to a shipped scenario under edits, as the app will show it."""
    run = reply(Question(name, None, sets, stamp())).now
    assert isinstance(run, Run)
    return run
