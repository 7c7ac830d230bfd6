"""A simulation that a page waits for can be stopped: the estimate stays, the process ends."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.ui import calls
from tests.ui.conftest import PAGES, checked
from tests.ui.test_explore import button
from tests.ui.test_one_truth import figures
from tests.ui.test_pages import words
from twin.ui import answers

STEP = "gpt-175b-64xa100-full;parallel.micro_batch=2;cluster.nodes=16"
UPDATE = "kimi-k2-weight-update-16xh20;cluster.nodes=4;weight_update.stages=three"
"""A kind of work without an estimate; no other test has its answer."""


@pytest.fixture
def endless(monkeypatch, freed):
    """Simulations that never end."""
    del freed
    monkeypatch.setattr(answers, "simulated", calls.endless_children)


def at_work(group: int) -> int:
    """How many processes of a group there are."""
    files = Path("/proc").glob("[0-9]*/stat")
    found = [one.read_text().rpartition(")")[2].split() for one in files]
    return sum(words[2] == str(group) and words[0] != "Z" for words in found)


def simulating() -> int:
    """The group of the process that simulates."""
    process = answers._SIMULATIONS.process.process
    assert process is not None
    return process.pid


def ends(group: int) -> bool:
    """Whether all processes of a group end within seconds."""
    deadline = time.monotonic() + 5
    while at_work(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def waiting(app, share="50 %"):
    """The page once its simulation has come so far."""
    deadline = time.monotonic() + 60
    while not any(share in str(one.proto) for one in app.get("progress")):
        assert time.monotonic() < deadline, words(app)
        time.sleep(0.1)
        app = checked(app.run())
    return app


@pytest.mark.usefixtures("endless")
def test_a_stopped_simulation_frees_its_cores_and_the_estimate_stands_on_every_page(opened):
    app = waiting(opened(STEP, page="result"))
    before = figures(app)
    assert before["Step time"]
    *_, last = app.sidebar.children.values()
    assert last.get("progress"), "below what a visitor clicks: it comes and goes"
    group = simulating()
    assert at_work(group) == 2, "a process, and the one that it has started"
    app = checked(button(app, "Stop").click().run())
    assert ends(group)
    assert figures(app) == before
    assert "Stopped at 50 %. The estimate stands." in words(app) + app.info[0].value
    for page in ("compare", "plan"):
        app.switch_page(str(PAGES / f"{page}.py"))
        app = checked(app.run())
        # The baseline is stopped with it; which of them was at work first is not said.
        assert re.search(r"stopped at (0|50) %: estimate", words(app)), page
        assert figures(app)["Step time"] >= before["Step time"], page
    app = checked(button(app, "Simulate again").click().run())
    assert "estimate, being simulated" in words(app)
    assert "stopped" not in words(app)
    waiting(app)
    assert at_work(simulating()) == 2


@pytest.mark.usefixtures("endless")
def test_a_stopped_plan_without_an_estimate_says_whether_it_fits_and_is_not_for_others(opened):
    app = waiting(opened(UPDATE, page="result"))
    group = simulating()
    app = checked(button(app, "Stop").click().run())
    assert "This kind of plan has no estimate." in words(app)
    assert "Fits with" in words(app)
    assert "stopped at 50 %" in words(app)
    assert ends(group)
    assert "stopped" not in words(opened(UPDATE, page="result"))
