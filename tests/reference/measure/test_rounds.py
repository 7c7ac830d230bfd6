"""Steps and groups in turns, by clocks that are made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reference.config import load_run
from reference.measure import clock, rounds
from reference.measure.clock import Call, Timing
from reference.measure.points import Setting, TimedCase
from tests.reference.measure.machines import exactly
from twin.loading import load_part


class FakeClock:
    """A clock that work moves."""

    def __init__(self) -> None:
        self.at = 0.0
        self.done: list[str] = []

    def __call__(self) -> float:
        return self.at

    def work(self, name: str, seconds: float) -> Call:
        """Work that takes so long."""

        def call() -> None:
            self.at += seconds
            self.done.append(name)

        return call


def test_a_round_has_steps_and_a_probe_in_front_of_each_group_and_behind_the_last() -> None:
    own = FakeClock()
    groups = [own.work("gemm", 5.0), own.work("host", 7.0)]
    watch = rounds.Watch(own, lambda: 4 * own.at)
    found = rounds.alternate(groups, own.work("step", 0.25), own.work("probe", 0.5), watch)
    between = ["probe", "step", "step"]
    assert own.done == [*between, "gemm", *between, "host", *between]
    assert found == rounds.RoundSamples((0.25,) * 6, (0.5,) * 3, 0.25)


@pytest.mark.parametrize(("seconds", "count"), [(120.0, 6), (119.0, 5), (1.0, rounds.FEWEST)])
def test_no_round_begins_that_would_end_too_late(seconds: float, count: int) -> None:
    own = FakeClock()
    places: list[str] = []
    for place in rounds.rounds(Path("here"), seconds, own):
        own.at += 20.0
        places.append(place.name)
    assert places == [f"round-{number + 1}" for number in range(count)]


def _fake(case: TimedCase) -> TimedCase:
    """A case on a machine of 100 GFLOP/s and 20 GB/s, 10 us a call."""

    def run(_: Setting) -> Timing:
        return exactly(1e-5 + case.flop / 1e11 + case.bytes / 2e10)

    return replace(case, run=run)


def _measured(
    folder: Path, step_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """The parts of a round whose steps take so long."""
    own, plain = FakeClock(), rounds._cases

    @contextmanager
    def trainer(_: object) -> Iterator[Call]:
        yield own.work("step", step_seconds)

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "FEWEST", 1)
        patch.setattr(rounds, "MOST_FLOP", 1e7)
        patch.setattr(rounds, "IN_TURN", ("launch", "bandwidth", "gemm", "attention", "host"))
        patch.setattr(rounds, "_trainer", trainer)
        patch.setattr(rounds, "probe", lambda: own.work("probe", 0.5))
        patch.setattr(rounds, "_cases", lambda *given: [_fake(case) for case in plain(*given)])
        patch.setattr(clock, "ticking", lambda _: own)
        config = folder / "run.json"
        folder.mkdir()
        config.write_text(load_run("nano").model_dump_json(by_alias=True))
        rounds.measure_rounds(config, folder, 0.0, lambda _: None)
    steps: Any = json.loads((folder / "round-1" / "steps.json").read_text())
    assert {round(each, 9) for each in steps["steps"]} == {step_seconds}
    parts = (folder / "round-1" / "catalog").rglob("*.yaml")
    return {path.name + path.parent.name: path.read_bytes() for path in parts}


def test_no_part_follows_from_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = _measured(tmp_path / "quick", 0.25, monkeypatch)
    assert quick == _measured(tmp_path / "slow", 0.5, monkeypatch)
    (path,) = (tmp_path / "quick").rglob("software/*.yaml")
    host = load_part("software", path.stem, [tmp_path / "quick" / "round-1"]).spec.host
    assert host is not None
    assert not host.ahead
    assert {round(each, 9) for each in host.items.values()} == {1e-5}
    # Everything else is the shipped stack's.
    shipped = load_part("software", "reference-cpu").spec.host
    assert shipped is not None
    assert host.model_copy(update={"items": shipped.items}) == shipped
