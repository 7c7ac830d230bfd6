"""A simulation that a page waits for can be stopped: its process ends, and the page says so."""

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
"""A plan of which no other test has the answer."""


@pytest.fixture
def endless(monkeypatch, freed):
    """Simulations that never end."""
    del freed
    monkeypatch.setattr(answers, "simulated", calls.endless_children)
    monkeypatch.setattr(answers, "GLANCE", 0)
    monkeypatch.setattr(answers, "MOMENT", 0)


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
        time.sleep(0.5)  # each run of the page takes as long
        app = checked(app.run())
    return app


@pytest.mark.usefixtures("endless")
def test_a_stopped_simulation_frees_its_cores_and_every_page_says_so(opened):
    app = waiting(opened(STEP, page="result"))
    assert "Step time" not in figures(app)
    *_, last = app.sidebar.children.values()
    assert last.get("progress"), "below what a visitor clicks: it comes and goes"
    group = simulating()
    assert at_work(group) == 2, "a process, and the one that it has started"
    app = checked(button(app, "Stop").click().run())
    assert ends(group)
    assert "Stopped at 50 %." in words(app) + app.info[0].value
    for page in ("compare", "plan"):
        app.switch_page(str(PAGES / f"{page}.py"))
        app = checked(app.run())
        # The baseline is stopped with it; which of them was at work first is not said.
        assert re.search(r"stopped at (0|50) %", words(app)), page
    app = checked(button(app, "Simulate again").click().run())
    assert "is being simulated" in words(app)
    assert "stopped" not in words(app)
    waiting(app)
    assert at_work(simulating()) == 2


@pytest.mark.usefixtures("endless")
def test_a_stopped_plan_says_whether_it_fits_and_is_not_stopped_for_others(opened):
    app = waiting(opened(UPDATE, page="result"))
    group = simulating()
    app = checked(button(app, "Stop").click().run())
    assert "Fits with" in words(app)
    assert "stopped at 50 %" in words(app)
    assert ends(group)
    assert "stopped" not in words(opened(UPDATE, page="result"))
