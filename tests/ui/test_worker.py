"""Work is done in another process: its progress and its result arrive, and its death is told."""

import os

import pytest

from tests.ui.calls import counted, ended
from twin.ui.background import Worker, WorkerDiedError


@pytest.fixture
def worker():
    one = Worker()
    yield one
    if one.process is not None:
        one.process.kill()
        one.process.communicate()


def test_work_is_done_elsewhere_and_says_how_far_it_is(worker):
    shares = []
    most, process = worker.perform(counted, (1000,), shares.append)
    assert most == 1000
    assert process != os.getpid()
    assert shares == sorted(shares)
    assert 50 <= len(shares) <= 101, "progress is told, but not a thousand times"


def test_a_process_that_ends_is_told_and_replaced_for_the_next_call(worker):
    with pytest.raises(WorkerDiedError, match="ended with 3"):
        worker.perform(ended, (3,), lambda _: None)
    assert worker.perform(counted, (1,), lambda _: None)[0] == 1
    worker.end()
    assert worker.perform(counted, (1,), lambda _: None)[0] == 1
