"""Pools: every task is answered once, and a worker that dies costs only its task."""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Future
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.answers import victims
from twin.answers.executors import (
    MOST_IN_A_BATCH,
    Died,
    Executor,
    PoolChoice,
    _Queue,
    _Ray,
    _results,
    check_cluster,
    play,
    play_batch,
)
from twin.answers.run_store import source_digest
from twin.errors import UsageError

LOCAL = PoolChoice(jobs=2)
HERE = PoolChoice(jobs=1)


@pytest.mark.parametrize("pool", [HERE, LOCAL], ids=["here", "two processes"])
def test_every_task_is_answered_once_with_its_index(pool: PoolChoice):
    found = list(play(victims.square, range(100, 400), pool=pool))
    assert sorted(found) == [(index, (100 + index) ** 2) for index in range(300)]


def test_a_worker_that_dies_costs_only_its_task():
    told: list[tuple[int, int]] = []
    tasks = range(60)
    found = dict(
        play(victims.square_or_die, tasks, pool=LOCAL, progress=lambda *two: told.append(two))
    )
    assert isinstance(found[7], Died)
    assert "EXIT(9)" in found[7].reason
    assert {index: found[index] for index in tasks if index != 7} == {
        index: index * index for index in tasks if index != 7
    }
    assert told[-1] == (60, 1)
    assert [done for done, _ in told] == list(range(1, 61))


@pytest.mark.parametrize("pool", [HERE, LOCAL], ids=["here", "two processes"])
def test_a_task_that_raises_costs_only_itself(pool: PoolChoice):
    found = dict(play(victims.square_or_raise, range(20), pool=pool))
    assert found[7] == Died("ValueError: seven")
    assert sum(isinstance(one, Died) for one in found.values()) == 1
    assert len(found) == 20


def test_tasks_are_taken_as_they_are_needed():
    taken: list[int] = []

    def tasks() -> Generator[int]:
        for number in range(10_000):
            taken.append(number)
            yield number

    course = play(victims.square, tasks(), pool=HERE)
    next(course)
    course.close()
    assert len(taken) == 1


def test_a_pool_that_is_left_early_ends_its_workers_at_once():
    course = play(victims.nap, [0.0, 60.0, 60.0], pool=LOCAL)
    next(course)
    begin = time.monotonic()
    course.close()
    assert time.monotonic() - begin < 5


class Deadly(Executor):
    """Workers that die of some tasks: always, or the first time."""

    def __init__(self, always: set[int], once: set[int], places: int) -> None:
        self.always, self.once, self.count = always, once, places
        self.alone: list[int] = []

    @property
    def places(self) -> int:
        return self.count

    def submit(self, function, batch) -> Future:
        indexes = {index for index, _ in batch}
        if len(batch) == 1:
            self.alone.append(batch[0][0])
        dies = indexes & (self.always | self.once)
        self.once -= indexes
        future = Future()
        if dies:
            future.set_exception(RuntimeError("gone"))
        else:
            future.set_result(play_batch(function, batch))
        return future

    def close(self) -> None:
        pass


@given(
    count=st.integers(0, 400),
    always=st.sets(st.integers(0, 399), max_size=4),
    once=st.sets(st.integers(0, 399), max_size=4),
    places=st.integers(1, 8),
)
def test_whoever_dies_of_what_only_tasks_that_kill_twice_are_lost(
    count: int, always: set[int], once: set[int], places: int
):
    executor = Deadly(set(always), set(once), places)
    course = _Queue(iter(enumerate(range(count))), count)
    found = list(_results(executor, victims.square, course))
    assert sorted(index for index, _ in found) == list(range(count))
    died = {index for index, result in found if isinstance(result, Died)}
    assert died == {index for index in always if index < count}
    assert died <= set(executor.alone)


def test_batches_grow_with_quick_tasks_and_leave_work_for_every_worker():
    course = _Queue(iter(enumerate(range(10_000))), 10_000)
    assert len(course.next(4)) == 1
    course.note(1, 0.003)
    assert len(course.next(4)) == 100
    course.note(100, 1e-9)
    assert len(course.next(4)) == MOST_IN_A_BATCH
    slow = _Queue(iter(enumerate(range(10))), 10)
    slow.note(1, 20.0)
    assert len(slow.next(4)) == 1
    few = _Queue(iter(enumerate(range(16))), 16)
    few.note(1, 0.001)
    assert len(few.next(4)) == 2


@pytest.mark.parametrize("url", ["", "dask", "dask://", "http://a:1", "localhost:8786"])
def test_what_is_no_address_of_a_cluster_is_refused(url: str):
    with pytest.raises(UsageError) as caught:
        check_cluster(url)
    assert caught.value.problems[0].code == "TW401"


class FakeRay(ModuleType):
    """A Ray cluster whose nodes, by id, run code of these digests."""

    def __init__(self, digests: dict[str, str]) -> None:
        super().__init__("ray")
        self.digests, self.ended = digests, False

    def nodes(self) -> list[dict[str, Any]]:
        played = {"Alive": True, "Resources": {"CPU": 2.0}}
        dead, head = {"NodeID": "x", "Alive": False}, {"NodeID": "h", "Alive": True}
        others = [{**dead, "Resources": {"CPU": 1.0}}, {**head, "Resources": {}}]
        return [*({"NodeID": name, **played} for name in self.digests), *others]

    def remote(self, *_: Any, **__: Any) -> Any:
        def options(scheduling_strategy: str) -> Any:
            return SimpleNamespace(remote=lambda: self.digests[scheduling_strategy])

        return lambda _: SimpleNamespace(options=options)

    def get(self, asked: list[str], timeout: float) -> list[str]:
        assert timeout > 0
        return asked

    def init(self, **_: Any) -> None: ...

    def shutdown(self) -> None:
        self.ended = True


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay({})
    pinned = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, **_: node)
    modules: dict[str, Any] = {"ray": fake, "ray.util.scheduling_strategies": pinned}
    monkeypatch.setattr("twin.answers.executors.import_module", modules.__getitem__)
    monkeypatch.setattr("twin.answers.executors.find_spec", lambda _: True)
    return fake


def test_the_code_of_every_node_of_a_ray_cluster_is_compared(ray: FakeRay):
    ray.digests |= {"a": source_digest(), "b": source_digest()}
    _Ray("ray://head:1")
    ray.digests["b"] = "other"
    with pytest.raises(UsageError, match="other code"):
        _Ray("ray://head:1")
    assert ray.ended
    ray.digests.clear()
    with pytest.raises(UsageError, match="no workers"):
        _Ray("ray://head:1")


@pytest.mark.usefixtures("ray")
def test_without_rays_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("twin.answers.executors.find_spec", lambda _: None)
    with pytest.raises(UsageError, match="client") as refused:
        _Ray("ray://head:1")
    assert "twin[ray]" in str(refused.value)
