"""Whole runs: they end, resume to the bit from wherever they were stopped, and teach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from reference.checkpoint.folder import newest
from reference.ending import Stop
from reference.rl.run import RlResult, RunObserver, learn_from
from reference.rl.session import IterationMetrics
from tests.reference.rl.mini import spec
from twin.errors import ScenarioError, UsageError

PARTIAL: dict[str, Any] = {
    "rollout": {"tokens": 60, "slice": 5},
    "engine": {"running": 5},
    "environments": {"latency": "30ms", "at_once": 2},
    "train": {"updates": 2, "checkpoint_every": 1},
    "temperature": {"first": 1.3, "last": 1.0, "iterations": 2},
    "ptx": {"weight": 0.1, "rows": 2},
    "iterations": 4,
}
"""Everything that a place in the middle of an iteration must remember."""


class StopAt(Stop):
    """Asks the run to stop at the n-th place where it can."""

    def __init__(self, place: int) -> None:
        self.left = place

    @property
    def signal(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.left -= 1
        return 15 if self.left < 0 else None

    @signal.setter
    def signal(self, value: int | None) -> None:
        del value


def told(folder: Path) -> list[dict[str, Any]]:
    """The log without what differs between two equal runs."""
    varying = {"phases", "waited_s", "looked_s", "seconds", "tokens_per_s", "peak_bytes"}
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if key not in varying}
        for line in lines
    ]


def same(ours: RlResult, theirs: RlResult) -> bool:
    there = theirs.model.state_dict()
    return all(torch.equal(one, there[name]) for name, one in ours.model.state_dict().items())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RlResult]:
    folder = tmp_path_factory.mktemp("whole")
    train = {**PARTIAL["train"], "output": str(folder / "run")}
    return folder, learn_from(spec(folder, **{**PARTIAL, "train": train}))


def resumed(folder: Path, place: int) -> tuple[Path, RlResult, list[int]]:
    """A run that is stopped at every so many places, and the steps of the engine into a rollout at
    each stop."""
    train = {**PARTIAL["train"], "output": str(folder / f"run-{place}")}
    given = spec(folder, **{**PARTIAL, "train": train})
    clocks: list[int] = []
    for _ in range(100):
        watch = RunObserver(stop=StopAt(place))
        found = learn_from(given, watch, "resume")
        if found.ended == "done":
            return folder / f"run-{place}", found, clocks
        checkpoint, _ = newest(folder / f"run-{place}" / "checkpoints")
        assert checkpoint is not None
        clocks.append(checkpoint.facts["rl"]["place"]["clock"])
    raise AssertionError("it does not come to an end")


def test_a_run_that_is_stopped_in_an_iteration_resumes_to_the_bit(
    whole: tuple[Path, RlResult],
) -> None:
    folder, straight = whole
    place, found, clocks = resumed(folder, 4)
    assert len(clocks) > 2
    assert any(clocks), "one of them in the middle of a rollout"
    assert same(found, straight)
    assert told(place) == told(folder / "run")


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1, 2, 3, 7])
def test_a_run_resumes_to_the_bit_from_everywhere(whole: tuple[Path, RlResult], place: int) -> None:
    folder, straight = whole
    again, found, clocks = resumed(folder, place)
    assert len(clocks) > 1
    assert same(found, straight)
    assert told(again) == told(folder / "run")


def test_partial_rollouts_pause_go_on_and_know_their_weights(whole: tuple[Path, RlResult]) -> None:
    _, straight = whole
    lines = straight.iterations
    assert max(one.open for one in lines) > 0
    assert max(one.stale or 0 for one in lines) > 0
    assert max(one.oldest for one in lines) >= 1
    assert all(one.written < 60 + 5 for one in lines)
    finished = sum(one.groups + one.left_out for one in lines)
    drawn = finished + lines[-1].open
    assert drawn == 3 + sum(one.groups + one.left_out for one in lines[:-1])
    assert [one.temperature for one in lines] == [1.3, 1.15, 1.0, 1.0]


def test_engines_agree_on_what_was_written(whole: tuple[Path, RlResult]) -> None:
    """Temperature, cuts and pauses included: what the trainer finds is what the engine told."""
    _, straight = whole
    assert all(one.mismatch < 1e-5 for one in straight.iterations if one.mismatch is not None)
    assert sum(one.mismatch is not None for one in straight.iterations) > 1


def test_a_run_repeats_itself(tmp_path: Path) -> None:
    given = spec(tmp_path, iterations=2)
    first, second = learn_from(given), learn_from(given)
    assert same(first, second)
    assert first.ended == "done"
    assert first.step == 2
    phases = first.iterations[0].phases
    assert set(phases) == {"rollout", "switch", "train", "update", "wake"}


def test_the_folder_of_another_run_is_refused(whole: tuple[Path, RlResult]) -> None:
    folder, _ = whole
    train = {**PARTIAL["train"], "output": str(folder / "run")}
    with pytest.raises(UsageError, match="TW231"):
        learn_from(spec(folder, **{**PARTIAL, "train": train}))
    other = spec(folder, **{**PARTIAL, "train": train, "objective": {"kl_weight": 0.5}})
    with pytest.raises(ScenarioError, match=r"TW644[\s\S]*objective"):
        learn_from(other, existing="resume")


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        ({"model": None}, "TW643"),
        ({"tasks": [{"source": "caracters"}]}, "TW640"),
        ({"tasks": [{"source": "reference.rl.toys:none"}]}, "TW640"),
        ({"engine": {"blocks": 1}}, "TW645"),
        ({"train": {"sequence": 4}, "engine": {"blocks": 64}}, "TW645"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, sections: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError, match=code):
        learn_from(spec(tmp_path, **sections))


def learned(folder: Path, seed: int, **rewards: Any) -> tuple[float, float]:
    """Mean reward of the first and the last five of some iterations."""
    given = spec(
        folder,
        tasks=[{"source": "characters", "count": 9}],
        iterations=24,
        prompts={"count": 9, "seed": seed},
        rollout={"responses": 8},
        rewards=rewards,
        train={"micro_batch": 32, "seed": seed},
        objective={"kl_weight": 0.02},
    )
    found = [one.reward or 0.0 for one in learn_from(given).iterations]
    return sum(found[:5]) / 5, sum(found[-5:]) / 5


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 2))]
)
def test_a_toy_is_learned(tmp_path: Path, seed: int) -> None:
    first, last = learned(tmp_path, seed)
    assert last > first + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shuffled_rewards_teach_nothing(tmp_path: Path, seed: int) -> None:
    first, control = learned(tmp_path, seed, shuffle=True)
    assert control < first + 0.05


def test_iterations_are_told_as_they_come(tmp_path: Path) -> None:
    seen: list[IterationMetrics] = []
    learn_from(spec(tmp_path, iterations=1), RunObserver(progress=seen.append))
    assert [one.iteration for one in seen] == [1]
    assert seen[0].ended.keys() <= {"budget", "over", "document"}


def test_weights_that_come_through_host_memory_are_the_same(tmp_path: Path) -> None:
    sync = {"free_memory": "1MiB", "bucket": "64KiB"}
    direct, host = (learn_from(spec(tmp_path, iterations=3, update=one)) for one in (None, sync))
    assert same(host, direct)
    assert direct.iterations[-1].version == 2
    ours, theirs = (
        [(one.reward, one.entropy, one.mismatch) for one in run.iterations]
        for run in (host, direct)
    )
    assert ours == theirs


@pytest.mark.slow
def test_worlds_in_processes_give_the_run_of_worlds_here(
    whole: tuple[Path, RlResult], tmp_path: Path
) -> None:
    """Answers come at the same steps of the engine, however long they really take."""
    _, straight = whole
    found = learn_from(
        spec(tmp_path, **{**PARTIAL, "environments": {"latency": "30ms", "workers": 2}})
    )
    assert same(found, straight)
    lines = [
        [(one.reward, one.entropy, one.stale, one.engine_steps) for one in run.iterations]
        for run in (found, straight)
    ]
    assert lines[0] == lines[1]
