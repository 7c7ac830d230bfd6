"""A run is followed: how far it is, what is left, beside its prediction, and why it is slow."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.evidence.live.made import BEGIN, line, noise, write_config, write_log, write_timeline
from twin.errors import UsageError
from twin.evidence.live.cause import measured
from twin.evidence.live.follower import Follower, SealComparison, follow
from twin.evidence.live.seals import Check, keep
from twin.evidence.live.timeline_window import window


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def beside(run: Path, seal) -> None:
    """Put a seal into a run's folder."""
    run.mkdir(exist_ok=True)
    (run / "prediction.json").write_text(json.dumps(seal.to_json()))


def prediction(follower: Follower) -> SealComparison:
    """What the run does beside its prediction."""
    found = follower.look().prediction
    assert found is not None
    return found


def verdict(follower: Follower) -> Check:
    """The check of what was read."""
    found = follower.check()
    assert found is not None
    return found


def test_progress_and_what_is_left_come_from_the_runs_folder(run: Path) -> None:
    write_config(run, 400)
    write_log(run, 2.0 * noise(100, sigma=0.02))
    found = follow(run).look()
    assert (found.state, found.step, found.steps, found.tokens) == ("running", 100, 400, 10_000)
    assert found.tokens_per_second == pytest.approx(50, rel=0.02)
    assert found.remaining is not None
    assert found.remaining.steps == 300
    assert found.remaining.seconds == pytest.approx(600, rel=0.02)
    assert found.remaining.interval is not None
    assert found.remaining.interval[0] < found.remaining.seconds < found.remaining.interval[1]
    assert found.ends is not None


def test_a_run_that_nobody_knows_the_end_of_has_no_remaining_time(run: Path) -> None:
    write_log(run, [1.0] * 50)
    found = follow(run).look()
    assert (found.steps, found.remaining, found.ends) == (None, None, None)
    known = follow(run, steps=60).look().remaining
    assert known is not None
    assert known.seconds == pytest.approx(10)


def test_later_stages_count_by_their_tokens(run: Path) -> None:
    write_config(run, 60)
    stage = {"name": "long", "steps": 10, "sequence": 40, "micro_batch": 5, "accumulate": 2}
    config = json.loads((run / "run.json").read_text()) | {"stages": [stage]}
    (run / "run.json").write_text(json.dumps(config))
    write_log(run, [1.0] * 50)
    found = follow(run).look()
    assert found.steps == 70
    assert found.remaining is not None
    assert (found.remaining.steps, found.remaining.seconds) == (20, pytest.approx(10 + 4 * 10))


def test_states(run: Path) -> None:
    write_config(run, 50)
    assert follow(run).look().state == "waiting"
    path = write_log(run, [1.0] * 30)
    now = datetime.now(UTC)
    assert follow(run).look(now).state == "running"
    then = (now - timedelta(hours=1)).timestamp()
    os.utime(path, (then, then))
    assert follow(run).look(now).state == "silent"
    write_log(run, [1.0] * 50)
    assert follow(run).look().state == "done"


def test_there_must_be_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TW340"):
        follow(tmp_path / "nothing")
    waiting = follow(tmp_path / "nothing", wait=True)
    assert waiting.look().state == "waiting"
    write_log(tmp_path / "nothing", [1.0])
    assert waiting.look().step == 1


@pytest.mark.parametrize(("factor", "inside", "left"), [(1.05, True, False), (1.4, False, True)])
def test_the_prediction_stands_beside_the_run(
    run: Path, sealed, factor: float, inside: bool, left: bool
) -> None:
    write_log(run, 2.0 * factor * noise(200, sigma=0.02))
    beside(run, sealed(2.0, 1.2))
    found = follow(run).look().prediction
    assert found is not None
    assert found.ratio == pytest.approx(factor, rel=0.01)
    assert found.inside is inside
    assert (found.left is not None) is left


def test_without_an_interval_nothing_is_inside_or_outside(run: Path, sealed) -> None:
    write_log(run, [2.0] * 100)
    one, _, _ = keep(sealed(1.0))
    follower = follow(run, one.digest[:10])
    found = follower.look()
    assert found.prediction is not None
    assert found.prediction.inside is None
    assert any("without an interval" in note for note in found.notes)
    assert verdict(follower).hit is None


def test_steps_of_another_size_are_not_compared(run: Path, sealed) -> None:
    write_log(run, [2.0] * 100, tokens=128)
    beside(run, sealed(2.0, 1.2))
    follower = follow(run)
    found = follower.look()
    assert found.prediction is not None
    assert found.prediction.ratio is None
    assert any("128 tokens, and the predicted ones 100" in note for note in found.notes)
    assert follower.check() is None


def test_a_prediction_sealed_after_the_run_began_is_late(run: Path, sealed) -> None:
    write_log(run, [1.0] * 100)
    now = datetime.now(UTC)
    beside(run, sealed(1.0, 1.2, when=now))
    follower = follow(run)
    assert prediction(follower).late
    assert verdict(follower).blind is False
    beside(run, sealed(1.0, 1.2, when=now - timedelta(days=1)))
    follower = follow(run)
    assert not prediction(follower).late
    assert verdict(follower).blind is True


def test_a_timeline_says_when_a_run_began(run: Path, sealed) -> None:
    """The log may have been copied since; the timeline's clock is the run's."""
    write_log(run, [1.0] * 50)
    flat = [[10] * 50, [10] * 50]
    write_timeline(run, 50, kernels=flat, message=[1] * 50, stall=[0] * 50, start=BEGIN - 10**18)
    beside(run, sealed(1.0, 1.2, when=datetime(2020, 1, 1, tzinfo=UTC)))
    assert follow(run).check() is None  # nothing has been read yet
    follower = follow(run)
    follower.look()
    assert str(verdict(follower).began).startswith("1995-05")


def slowed(run: Path, what: str, *, factor: int = 3) -> None:
    """120 steps, slower from step 81 on, with a timeline that says why: 20 + 20 + 2 x 5 ms of which
    one part grows."""
    parts = {name: [20] * 120 for name in ("first", "second")} | {"wire": [5] * 120}
    parts["stall"] = [1] * 120
    for name in parts if what == "all" else [what]:
        grown = [value * factor if at >= 80 else value for at, value in enumerate(parts[name])]
        parts[name] = grown
    seconds = [
        (2 * a + 2 * b + 2 * c + d) / 1e3 for a, b, c, d in zip(*parts.values(), strict=True)
    ]
    write_config(run, 200)
    write_log(run, seconds)
    kernels = [parts["first"], parts["second"]]
    write_timeline(run, 120, kernels=kernels, message=parts["wire"], stall=parts["stall"])


@pytest.mark.parametrize(
    ("what", "kind", "words", "factor"),
    [
        ("second", "slow_stage", "stage 1, kernels per step: 40 ms -> 120 ms", 3),
        ("first", "slow_stage", "stage 0, kernels per step: 40 ms -> 120 ms", 3),
        ("wire", "slow_link", "5 ms -> 40 ms", 8),
        ("stall", "data_stall", "1 ms -> 60 ms", 60),
    ],
)
def test_the_likely_cause_is_what_was_made_slow(
    run: Path, what: str, kind: str, words: str, factor: int
) -> None:
    slowed(run, what, factor=factor)
    found = follow(run).look()
    (turn,) = found.changes
    assert turn.step == 81
    assert found.cause is not None
    assert found.cause.likely is not None
    assert found.cause.likely.kind == kind
    assert words.replace(" ms", "") in found.cause.words.replace(".0", "").replace(" ms", "")
    assert found.cause.likely.share > 0.45


def test_a_transfer_that_waits_for_a_late_peer_is_no_slow_link(run: Path) -> None:
    """Stage 1 gets slower, and four of five messages to it last longer, as they wait for it; the
    fifth moves as fast as ever. They grow by more than the stage does."""
    stage = [20] * 80 + [30] * 40
    wire = [5] * 80 + [5 if n % 5 == 0 else 60 for n in range(40)]
    write_config(run, 200)
    write_log(run, [0.1] * 80 + [0.12] * 40)
    write_timeline(run, 120, kernels=[[20] * 120, stage], message=wire, stall=[1] * 120)
    found = follow(run).look().cause
    assert found is not None
    assert found.likely is not None
    assert found.likely.kind == "slow_stage"
    assert [one.kind for one in found.evidence] == ["slow_stage"]


def test_all_stages_alike_are_said_to_be_alike(run: Path) -> None:
    slowed(run, "all")
    found = follow(run).look().cause
    assert found is not None
    assert found.evidence[0].kind == "all_stages"


def test_a_slowness_that_no_rank_saw_is_not_explained(run: Path) -> None:
    """The log says slower, the timeline says as before: something outside of what it records."""
    write_config(run, 200)
    write_log(run, [0.1] * 80 + [0.3] * 40)
    flat = [[20] * 120, [20] * 120]
    write_timeline(run, 120, kernels=flat, message=[5] * 120, stall=[1] * 120)
    found = follow(run).look().cause
    assert found is not None
    assert found.likely is None
    assert found.words.startswith("Not explained")


def test_without_a_timeline_a_cause_is_not_guessed(run: Path) -> None:
    write_config(run, 200)
    write_log(run, [0.1] * 80 + [0.3] * 40)
    found = follow(run).look()
    assert found.changes
    assert found.cause is None
    assert any("writes no timeline" in note for note in found.notes)


def test_the_time_between_steps_is_counted_in(run: Path) -> None:
    write_config(run, 200)
    write_log(run, [0.1] * 100)
    flat = [[20] * 100, [20] * 100]
    write_timeline(run, 100, kernels=flat, message=[10] * 100, stall=[0] * 100, pause=25)
    found = follow(run).look()
    assert found.pause_share == pytest.approx(0.25, rel=0.02)
    assert found.remaining is not None
    assert found.remaining.seconds == pytest.approx(100 * 0.1 * 1.25, rel=0.02)


def test_only_the_steps_that_are_wanted_are_read(run: Path) -> None:
    flat = [[20] * 300, [20] * 300]
    write_timeline(run, 300, kernels=flat, message=[5] * 300, stall=[0] * 300)
    found = window(run, 120, 130)
    assert found is not None
    assert found.steps == tuple(range(120, 131))
    assert window(run, 400, 500) is None


def test_a_step_that_ran_again_counts_as_it_ran_last(run: Path) -> None:
    flat = [[20] * 30, [20] * 30]
    write_timeline(run, 30, kernels=flat, message=[5] * 30, stall=[0] * 30)
    files = sorted((run / "timeline").iterdir())
    before = [one.read_text() for one in files]
    slow = [[40] * 30, [20] * 30]
    write_timeline(run, 30, kernels=slow, message=[5] * 30, stall=[0] * 30, start=BEGIN * 2 // 1)
    for file, text in zip(files, before, strict=True):
        file.write_text(text + file.read_text())
    found = window(run, 10, 20)
    assert found is not None
    assert measured(found).stages == pytest.approx({0: 0.08, 1: 0.04})


def test_a_torn_timeline_is_passed_over(run: Path) -> None:
    slowed(run, "second")
    file = run / "timeline" / "rank-00000.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    assert follow(run).look().cause is not None
    file.write_text("nothing sound\n")
    assert follow(run).look().cause is None


def test_a_prediction_explains_what_was_slow_from_the_start(run: Path, sealed) -> None:
    """Both stages take what was predicted, and 400 ms beside it in one of them."""
    one = sealed(None, 1.05, tokens=100)
    kernels = [round(stage.kernel_seconds * 1e3 / 2) for stage in one.prediction.stages]
    flat = [[kernels[0]] * 60, [kernels[1] + 200] * 60]
    write_timeline(run, 60, kernels=flat, message=[1] * 60, stall=[0] * 60)
    write_log(run, [one.seconds + 0.4] * 60)
    beside(run, one)
    found = follow(run).look()
    assert found.prediction is not None
    assert found.prediction.left is not None
    assert found.cause is not None
    assert found.cause.against == "prediction"
    assert found.cause.likely is not None
    assert (found.cause.likely.kind, "stage 1" in found.cause.words) == ("slow_stage", True)


def test_a_document_holds_everything(run: Path, sealed) -> None:
    slowed(run, "second")
    beside(run, sealed(0.09, 1.2))
    document = json.loads(json.dumps(follow(run).look().to_json(), allow_nan=False))
    assert document["version"] == 1
    assert document["changes"][0]["ratio"] > 1.5
    assert document["cause"]["likely"] == "slow_stage"
    assert document["prediction"]["inside"] in (True, False)
    assert {"state", "step", "steps", "pace", "remaining", "notes"} <= set(document)
    assert line(1, 1.0)["kind"] == "step"
