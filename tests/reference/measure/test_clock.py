"""The clock: what it repeats, when it stops, and that a GPU's row waits for its host."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
import torch

from reference.measure import clock
from reference.measure.clock import Effort, measure, summary
from reference.measure.points import timed
from tests.reference.measure.machines import setting

CPU = torch.device("cpu")


def test_a_summary_has_the_quartiles_and_counts_what_lies_beyond_the_fence() -> None:
    timing = summary([1.0, 2.0, 3.0, 4.0, 100.0], 7)
    assert (timing.least, timing.lower, timing.median, timing.upper) == (1.0, 2.0, 3.0, 4.0)
    assert (timing.most, timing.samples, timing.calls, timing.outliers) == (100.0, 5, 7, 1)


def busy(seconds: float) -> None:
    """Computes for so long."""
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


def test_on_one_thread_a_call_takes_what_it_computes_and_the_wall_is_kept_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that others keep waiting 5 ms for every 2 ms that it computes."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    timing = measure([lambda: (busy(2e-3), time.sleep(5e-3))], CPU, Effort(0.01, 3))
    assert timing.least >= 2e-3
    assert timing.wall_least is not None
    assert timing.wall_least >= timing.least + 4.9e-3


def test_on_several_threads_the_wall_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    timing = measure([lambda: time.sleep(5e-3)], CPU, Effort(0.01, 3))
    assert timing.least >= 5e-3


def test_a_row_cycles_through_all_sets_of_inputs_however_long_a_call_takes() -> None:
    """Otherwise the first stays in the cache."""
    ran: list[int] = []
    calls = [lambda each=each: (ran.append(each), busy(1e-3)) for each in range(5)]
    assert measure(calls, CPU, Effort(0.0, 1)).calls == 5
    assert ran[-5:] == [0, 1, 2, 3, 4]


def test_states_of_an_optimizer_exceed_the_last_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "last_level_cache", lambda: 1000)
    made: list[int] = []
    monkeypatch.setattr(clock, "measure", lambda calls, *_: made.append(len(calls)))
    for cold in (False, True):
        timed(lambda _: lambda: None, 400.0, cold=cold)(setting("cpu", "kimi-k2-nano"))
    assert made == [1, 10]


def test_short_calls_are_timed_in_rows() -> None:
    timing = measure([lambda: None], CPU, Effort(1e-3, 2))
    assert timing.calls > 100
    assert timing.least < 1e-5


def test_calls_take_turns_so_that_inputs_do_not_stay_in_a_cache() -> None:
    made: list[int] = []
    calls = [lambda i=i: (made.append(i), time.sleep(5e-5)) for i in range(3)]
    timing = measure(calls, CPU, Effort(1e-4, 1))
    row = made[-timing.calls :]
    assert row == [i % 3 for i in range(timing.calls)]


def test_a_loose_interval_is_sampled_until_the_time_is_spent_and_a_tight_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def samples(values: Iterator[float]) -> int:
        def watch(row: Sequence[clock.Call]) -> tuple[float, float]:
            seconds = next(values) * len(row)
            return seconds, seconds

        monkeypatch.setattr(clock, "_clocks", lambda _: watch)
        return measure([lambda: None], CPU, Effort(0.02, 5)).samples

    assert samples(iter(lambda: 1.0, None)) == 5
    wild = (1.0 + (i % 7) for i in range(10**9))
    assert samples(wild) > 50


class Event:
    """A point on the clock of a GPU that works off its queue one after another."""

    busy = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        self.at = max(Event.busy, time.perf_counter())

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


def work(seconds: float) -> None:
    """A kernel, enqueued at once and done after all before it."""
    Event.busy = max(Event.busy, time.perf_counter()) + seconds


@pytest.mark.parametrize("rise", [1.0, 5.0])
def test_on_a_gpu_the_hosts_time_is_in_no_row(rise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that needs 1 ms to enqueue a kernel of 0.1 ms: the row is 0.1 ms a kernel, though the
    clock rises and the GPU sleeps a fifth of what it was told."""
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "Event", Event)
    monkeypatch.setattr(
        cuda, "synchronize", lambda *_: time.sleep(max(0.0, Event.busy - time.perf_counter()))
    )
    monkeypatch.setattr(clock, "_sleep", lambda seconds: work(seconds / rise))

    def call() -> None:
        time.sleep(1e-3)
        work(1e-4)

    device = torch.device("cuda")
    alone = measure([call], device, Effort(0.01, 3))
    assert alone.median == pytest.approx(1e-4, rel=0.05)
    assert alone.wall_least is None
    whole = measure([call], device, Effort(0.01, 3), with_host=True)
    assert whole.median > 1e-3
