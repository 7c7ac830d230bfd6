"""A run that is stopped, killed or damaged goes on as if it had not been."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from reference.checkpoint.piece import Pieces
from reference.ending import Stop
from reference.metrics import NAME, StepMetrics, read_lines
from reference.train import Result, train
from reference.trainer.trainee import Trainee
from tests.reference.train.child import in_a_child
from tests.reference.train.mini import Load

LONG = "{name: long, steps: 4, sequence: 32, micro_batch: 1, accumulate: 2, lr: 0.001, yarn: 2.0}"
VARIANTS = {
    "fp32": [],
    "bf16 with masters": ["train.precision=bf16"],
    "a long-context stage": ["train.steps=8", f"stages=[{LONG}]"],
    "AdamW, micro-batches": ["optimizer.kind=adamw", "train.accumulate=3"],
    "states in host memory, layers that run again": [
        "train.precision=bf16",
        "memory={offload: [optimizer], recompute: [full]}",
        "balance.sequence_loss=0.01",
    ],
}


def interrupted(load: Load, overrides: Sequence[str], after: int) -> Result:
    """The run, asked to stop during the step after `after`, in its folder."""
    stop = Stop()

    def watch(step: StepMetrics) -> None:
        if step.step == after:
            stop.signal = signal.SIGTERM

    return train(load(*overrides), progress=watch, existing="resume", stop=stop)


def curve(result: Result) -> list[tuple[int, float, float, float]]:
    return [(one.step, one.loss, one.gradient_norm, one.max_logit) for one in result.steps]


def same_weights(one: Result, other: Result) -> bool:
    theirs = other.model.state_dict()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in one.model.state_dict().items())


@pytest.mark.parametrize("overrides", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_run_stopped_twice_equals_one_that_never_was_bit_by_bit(
    load: Load, overrides: list[str]
) -> None:
    whole = train(load(*overrides, "train.output=null"))
    assert [one.step for one in whole.steps] == list(range(1, 13))
    assert interrupted(load, overrides, 3).ended == "interrupted"
    assert interrupted(load, overrides, 9).step == 9
    resumed = train(load(*overrides), existing="resume")
    assert resumed.ended == "done"
    assert curve(resumed) == curve(whole)
    assert resumed.evaluations == whole.evaluations
    assert same_weights(resumed, whole)


def test_a_step_after_a_resume_needs_everything_that_was_saved(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof that the test above can fail: without the optimizer's states it does."""
    whole = train(load("train.output=null"))
    interrupted(load, [], 5)
    tensors_of = __import__("reference.trainer.resume", fromlist=["tensors_of"]).tensors_of

    def forgetful(trainee: Trainee) -> dict[str, Pieces]:
        found = tensors_of(trainee)
        return {
            name: replace(piece, tensor=piece.tensor.clone()) if "momentum" in name else piece
            for name, piece in found.items()
        }

    monkeypatch.setattr("reference.trainer.resume.tensors_of", forgetful)
    resumed = train(load(), existing="resume")
    assert curve(resumed)[:6] == curve(whole)[:6]
    assert curve(resumed) != curve(whole)


def test_a_finished_run_resumes_to_itself(load: Load) -> None:
    done = train(load())
    again = train(load(), existing="resume")
    assert again.ended == "done"
    assert curve(again) == curve(done)
    assert again.evaluations == done.evaluations


def test_a_run_killed_before_its_last_evaluation_makes_up_for_it(load: Load) -> None:
    whole = train(load("train.output=null"))
    assert interrupted(load, [], 12).ended == "interrupted"
    assert train(load(), existing="resume").evaluations == whole.evaluations


def test_a_damaged_checkpoint_is_refused_by_name_and_the_run_still_ends_the_same(
    load: Load, tmp_path: Path
) -> None:
    whole = train(load("train.output=null"))
    interrupted(load, [], 9)
    newest = tmp_path / "out" / "checkpoints" / "step-00000009"
    file = next(newest.glob("tensors/*.distcp"))
    file.write_bytes(file.read_bytes()[:-1])
    told: list[str] = []
    resumed = train(load(), existing="resume", tell=told.append)
    assert "TW233 checkpoint `step-00000009` is refused" in told[1]
    assert "resumed after step 8" in told[2]
    assert curve(resumed) == curve(whole)
    lines = read_lines(tmp_path / "out" / NAME)
    assert [line["step"] for line in lines if line["kind"] == "step"] == list(range(1, 13))
    assert [line["step"] for line in lines if line["kind"] == "refused"] == [8]


def killed_at_random(arguments: list[str], kills: int, steps: int, random: Random) -> int:
    """Kill -9 the run at random moments from its first checkpoint on, until it was killed so often,
    then let it end; returns the number of kills that hit a running process. Each of its lives ends
    at the latest after its share of the steps, so that a fast machine is not done before."""
    folder = Path(arguments[0]).parent / "out"
    log = folder / NAME
    hits, said = 0, Path(arguments[0]).with_suffix(".said")
    while True:
        child = in_a_child([*arguments, "--resume"], str(said))
        if hits < kills:
            while not any(folder.glob("checkpoints/step-*")):
                time.sleep(2e-3)
            last = time.monotonic() + random.uniform(0.0, 0.8)
            most = steps * (hits + 1) // (kills + 1)
            while time.monotonic() < last and not (log.exists() and reached(log) >= most):
                time.sleep(2e-3)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            hits += 1
            continue
        assert os.WEXITSTATUS(status) == 0, said.read_text(encoding="utf-8")
        return hits


def reached(log: Path) -> int:
    """Steps in the log so far; its last line may not be whole."""
    return log.read_bytes().count(b'"kind": "step"')


def losses(folder: Path) -> list[tuple[int, str]]:
    lines = read_lines(folder / NAME)
    return [(line["step"], line["loss"].hex()) for line in lines if line["kind"] == "step"]


def assert_kills_change_nothing(config: Path, load: Load, kills: int, steps: int) -> None:
    overrides = [f"train.steps={steps}", "train.checkpoint_every=2", "train.keep=2"]
    arguments = [str(config)]
    for override in overrides:
        arguments += ["--set", override]
    hits = killed_at_random(arguments, kills, steps, Random(0))
    assert hits == kills
    whole = train(load(*overrides, "train.output=null"))
    folder = config.parent / "out"
    assert losses(folder) == [(one.step, one.loss.hex()) for one in whole.steps]
    checkpoints = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert checkpoints == [f"step-{steps - 2:08d}", f"step-{steps:08d}"]


def test_a_run_killed_three_times_has_the_curve_of_one_that_was_not(
    config: Path, load: Load
) -> None:
    assert_kills_change_nothing(config, load, kills=3, steps=40)


@pytest.mark.slow
def test_a_run_killed_often_has_the_curve_of_one_that_was_not(config: Path, load: Load) -> None:
    kills = int(os.environ.get("TWIN_KILLS", "20"))
    assert_kills_change_nothing(config, load, kills=kills, steps=8 * kills)


def test_of_two_writers_of_one_output_one_trains(config: Path, load: Load) -> None:
    both = [in_a_child([str(config)]) for _ in range(2)]
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in both)
    assert codes == [0, 2], "the other is refused: TW232, or TW231 where the first is done already"
    whole = train(load("train.output=null"))
    assert losses(config.parent / "out") == [(one.step, one.loss.hex()) for one in whole.steps]
