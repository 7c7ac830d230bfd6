"""Long work happens once, newest first, and only so many results are kept."""

import time
from threading import Event

import pytest

from tests.ui.calls import counted, endless
from twin.ui.background import KEPT, Jobs, Stopped, Worker

PATIENCE = 10


def test_the_same_question_is_worked_on_once():
    jobs, calls = Jobs("test"), []
    one = jobs.ask("a", lambda _: calls.append(1) or "done")
    other = jobs.ask("a", lambda _: calls.append(2) or "done")
    assert one.within(PATIENCE) == other.within(PATIENCE) == "done"
    assert calls == [1]


def test_the_newest_question_comes_first():
    jobs, gate, order = Jobs("test"), Event(), []
    jobs.ask("gate", lambda _: gate.wait(PATIENCE))
    older = jobs.ask("older", lambda _: order.append("older"))
    newer = jobs.ask("newer", lambda _: order.append("newer"))
    gate.set()
    newer.within(PATIENCE)
    older.within(PATIENCE)
    assert order == ["newer", "older"]


def test_a_page_sees_how_far_the_work_is_and_never_waits_for_it():
    jobs, noted, gate = Jobs("test"), Event(), Event()

    def work(note):
        time.sleep(0.01)
        note(0.5)
        noted.set()
        return gate.wait(PATIENCE)

    pending = jobs.ask("a", work)
    assert noted.wait(PATIENCE)
    assert pending.within(0) is None
    assert pending.progress.share == 0.5
    assert pending.progress.left == pytest.approx(pending.progress.seconds, rel=0.01)
    gate.set()
    assert pending.within(PATIENCE)


def test_only_so_many_results_are_kept_and_dropped_work_is_not_begun():
    jobs, gate, begun = Jobs("test"), Event(), []
    jobs.ask("gate", lambda _: gate.wait(PATIENCE))
    pending = [jobs.ask(n, lambda _, n=n: begun.append(n)) for n in range(KEPT + 3)]
    assert len(jobs.results) == KEPT
    gate.set()
    pending[3].within(PATIENCE)
    assert pending[0].future.cancelled()
    assert 0 not in begun


def test_work_that_is_stopped_is_so_for_all_until_it_is_begun_again():
    jobs, gate, begun = Jobs("test"), Event(), Event()

    def work(note):
        note(0.4)
        begun.set()
        return gate.wait(PATIENCE)

    pending, waiting = jobs.ask("a", work), jobs.ask("b", lambda _: "never")
    assert begun.wait(PATIENCE)
    waiting.stop()
    pending.stop()
    stopped, never = pending.within(0), waiting.within(0)
    assert isinstance(stopped, Stopped)
    assert isinstance(never, Stopped)
    assert [stopped.percent, never.percent] == ["40 %", "0 %"]
    assert jobs.ask("a", work) is pending
    gate.set()
    stopped.again()
    assert jobs.ask("a", lambda _: "done").within(PATIENCE) == "done"
    assert isinstance(pending.within(0), Stopped), "what the old work says comes too late"


def test_work_that_is_stopped_while_its_process_starts_is_not_begun(monkeypatch):
    jobs, starting, gate, start = Jobs("test"), Event(), Event(), Worker._started

    def started(worker):
        starting.set()
        gate.wait(PATIENCE)
        return start(worker)

    monkeypatch.setattr(Worker, "_started", started)
    pending = jobs.ask("a", lambda note: jobs.process.perform(endless, (1,), note))
    assert starting.wait(PATIENCE)
    pending.stop()
    gate.set()
    following = jobs.ask("b", lambda note: jobs.process.perform(counted, (1,), note))
    assert following.within(PATIENCE), "the process is free"
    jobs.process.end()


def test_work_that_fails_does_not_end_the_thread():
    jobs = Jobs("test")

    def wrong(_):
        raise KeyError("not a thing")

    failed = jobs.ask("a", wrong)
    assert jobs.ask("b", lambda _: "done").within(PATIENCE) == "done"
    assert isinstance(failed.future.exception(PATIENCE), KeyError)


def test_only_work_that_a_ready_process_does_next_is_worth_a_wait(monkeypatch):
    jobs, begun, gate = Jobs("test"), Event(), Event()
    first = jobs.ask("first", lambda _: True)
    assert first.within(PATIENCE)
    assert not jobs.is_next(first), "its process has not loaded anything yet"
    monkeypatch.setattr(jobs.process, "has_answered", True)
    assert jobs.is_next(first)
    long = jobs.ask("long", lambda _: begun.set() or gate.wait(PATIENCE))
    assert begun.wait(PATIENCE)
    other = jobs.ask("other", lambda _: True)
    assert jobs.is_next(long)
    assert not jobs.is_next(other)
    gate.set()
    assert other.within(PATIENCE)
