"""Kills after something was stored, and two writers of one store: nothing is lost, nothing doubled,
nothing half-written is read. `TWIN_KILLS` says how often each store's writer is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.conftest import SMALL
from twin.answers import run_store
from twin.answers.answer import ask
from twin.cli.main import main
from twin.evidence.live import seals
from twin.evidence.live.seal import digest_of, seal
from twin.evidence.live.step_time_estimate import StepTime
from twin.explore.sweep import points
from twin.loading import load

pytestmark = pytest.mark.slow
NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)
KILLS: Final = int(os.environ.get("TWIN_KILLS", "20"))


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path / "runs"))
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    return tmp_path


def in_a_child(work: Callable[[], object]) -> int:
    """The id of a process that does the work: a fork, so that it begins at once."""
    child = os.fork()
    if child:
        return child
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        work()
        os._exit(0)
    finally:
        os._exit(99)


def killed(store: Callable[[int], object], items: Callable[[], list[Any]]) -> list[Any]:
    """The items of a store whose writer, which stores one after another from where the last writer
    ended, was killed so often, each time after it had stored something."""
    chance, kept = random.Random(5), items()
    for _ in range(KILLS):

        def write(begin: int = len(kept)) -> None:
            for number in count(begin):
                store(number)

        child, until = in_a_child(write), time.monotonic() + 60
        while len(items()) <= len(kept):
            assert time.monotonic() < until, "nothing is stored"
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.01))
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        now = items()
        assert now[: len(kept)] == kept, "nothing is lost"
        kept = now
    print(f"{KILLS} kills, {len(kept)} items")
    return kept


def test_runs_survive_kills(small: Path) -> None:
    """Every entry is whole; each has a scenario of its own."""
    run = ask(load(small / "small.yaml"), cache=False)
    first = run_store.key(run.scenario, "events")

    def store(number: int) -> None:
        name = f"{number:064x}"
        run_store.put(replace(first, hash=name), run.scenario, run.trace, run.report)

    def items() -> list[str]:
        entries = run_store.stored()
        return sorted(entry.hash for entry in entries)

    kept = killed(store, items)
    assert kept == [f"{number:064x}" for number in range(len(kept))]
    for name in kept:
        taken = run_store.take(replace(first, hash=name))
        assert taken is not None
        assert taken[0].step_ns == run.trace.step_ns


def test_points_survive_kills(small: Path) -> None:
    outcome, folder = points.failed("none"), small / "points"

    def store(number: int) -> None:
        points.keep(folder, replace(outcome, hash=f"{number:064x}"))

    def items() -> list[str]:
        return sorted(path.name[:64] for path in folder.glob("??/[0-9a-f]*.json"))

    kept = killed(store, items)
    assert kept == [f"{number:064x}" for number in range(len(kept))]
    for name in kept:
        assert points.recall(folder, name, "events") == replace(outcome, hash=name)


def test_seals_and_their_checks_survive_kills(small: Path) -> None:
    one, folder = seal(ask(load(small / "small.yaml"), cache=False)), small / "seals"
    seals.keep(one, folder)

    def checks(number: int) -> None:
        seals.add(
            seals.check(one, StepTime(1.0 + number, None, 100), f"run-{number}", None, NOW),
            folder,
        )

    kept = killed(checks, lambda: [check.run for check in seals.read_seals(folder).checks])
    assert kept == [f"run-{number}" for number in range(len(kept))]

    def store(number: int) -> None:
        named = replace(one, prediction=replace(one.prediction, hash=f"{number:064x}"), digest="")
        document = named.to_json()
        seals.keep(replace(named, digest=digest_of(document)), folder)

    names = killed(
        store,
        lambda: sorted(
            each.prediction.hash
            for each in seals.read_seals(folder).seals
            if each.digest != one.digest
        ),
    )
    assert names == [f"{number:064x}" for number in range(len(names))]


BATCHES: Final = ",".join(f"{8 * size}seq" for size in range(1, 31))


def sweep(name: str, store: str = "runs") -> Callable[[], int]:
    """A sweep of thirty points, which stores each as soon as it is known."""
    words = ["sweep", "small.yaml", "--grid", f"train.global_batch={BATCHES}", "--jobs", "1"]

    def work() -> int:
        os.environ["TWIN_RUNS"] = store
        return main([*words, "-q", "-o", f"{name}.json"])

    return work


def found(folder: Path, name: str) -> list[dict[str, Any]]:
    """Points of a sweep that has ended, without what says where they come from."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["points"]


def stored(folder: Path, store: str) -> set[Path]:
    return {path for path in (folder / store).rglob("*.json") if path.name[0] != "."}


def ended(*children: int) -> Iterator[int]:
    return (os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def test_a_sweep_that_is_killed_again_and_again_goes_on(small: Path) -> None:
    assert [*ended(in_a_child(sweep("calm", "calm")))] == [0]
    kept: set[Path] = set()
    while len(kept) < len(found(small, "calm")) - 3:
        child = in_a_child(sweep("killed", "killed"))
        while stored(small, "killed") <= kept:
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        now = stored(small, "killed")
        assert kept <= now
        kept = now
    assert [*ended(in_a_child(sweep("killed", "killed")))] == [0]
    assert found(small, "killed") == found(small, "calm")
    assert len(stored(small, "killed")) == len(stored(small, "calm"))


def test_two_writers_of_one_store_have_the_same_points(small: Path) -> None:
    both = [in_a_child(sweep(name, "shared")) for name in ("one", "other")]
    assert [*ended(*both)] == [0, 0]
    assert found(small, "one") == found(small, "other")
    assert len(stored(small, "shared")) == len(found(small, "one"))
