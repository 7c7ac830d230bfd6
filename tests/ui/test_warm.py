"""What the app does before a visitor asks."""

import gc
import sys
import time
from threading import Thread
from types import ModuleType

from streamlit.testing.v1 import AppTest

from tests.ui.conftest import APP, checked
from twin.answers import Run, ask, stored
from twin.loading import load
from twin.ui import answers
from twin.ui.answers import Question
from twin.ui.background import Worker
from twin.ui.warm import Drawing, warm

SMALL = "gpt-175b-64xa100-full"


def test_the_first_page_is_drawn_while_another_thread_still_loads_pandas(monkeypatch):
    """Half of a module stands among those that are loaded, and this page may not touch it."""
    checked(AppTest.from_file(str(APP), default_timeout=60).run())
    for name in [one for one in sys.modules if one.partition(".")[0] == "pandas"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    app = checked(AppTest.from_file(str(APP), default_timeout=60).run())
    assert "What must be true" in [one.value for one in app.header]


def test_nothing_is_loaded_while_a_page_is_drawn_nor_right_after():
    drawing, done = Drawing(), []

    def load():
        drawing.await_rest(0.2)
        done.append(time.monotonic())

    other = Thread(target=load)
    with drawing:
        other.start()
        time.sleep(0.3)
        assert not done
        ended = time.monotonic()
    other.join(10)
    assert done[0] - ended >= 0.2
    drawing.await_rest(0.1)
    assert Drawing().await_rest(60) is None, "without a page nothing waits"


def test_shipped_plans_without_a_stored_answer_are_simulated_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path))
    update = "kimi-k2-weight-update-16xh20"
    monkeypatch.setattr(answers, "shipped_scenarios", lambda: (SMALL, update))
    answers.store_shipped(SMALL, lambda _: None)
    (first,) = stored()
    assert first.command == f"twin run {SMALL}"
    answers.store_shipped(SMALL, lambda _: None)
    assert stored() == [first]


def test_a_stored_answer_is_shown_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path))
    ask(load(SMALL, ["train.tokens=7T"]))
    monkeypatch.setattr(Worker, "perform", _late)
    monkeypatch.setattr(answers, "GLANCE", 0.05)
    monkeypatch.setattr(answers, "MOMENT", 60)
    found = answers.reply(Question(SMALL, None, ("train.tokens=7T",), 7))
    assert found.coming is None
    assert isinstance(found.now, Run)
    assert found.now.cached


def test_all_that_is_warmed_up_can_be(monkeypatch):
    monkeypatch.setattr(answers, "prepare", lambda first: first)
    monkeypatch.setattr("twin.ui.warm._PATIENCE", 0)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    warm()


def _late(_worker, work, arguments, note):
    time.sleep(0.1)
    return work(*arguments, note)
