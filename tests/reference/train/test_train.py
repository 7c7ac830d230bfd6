"""What a run does, and what its command says and returns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from reference.ending import ending_on_signals
from reference.metrics import NAME, read_lines
from reference.parallel.runtime import Outcome
from reference.text.prepare import prepare
from reference.train import Result, main, train
from reference.trainer import step
from reference.trainer.settings import opened, settings
from reference.trainer.stages import Stage
from reference.trainer.trainee import Trainee
from tests.reference.train.child import in_a_child
from tests.reference.train.mini import Load
from twin.errors import UsageError


def quiet(*overrides: str) -> list[str]:
    return ["train.output=null", *overrides]


def losses(result: Result) -> list[float]:
    return [step.loss for step in result.steps]


def test_the_loss_goes_down(load: Load) -> None:
    result = train(load(*quiet("train.steps=40", "schedule.constant_steps=38")))
    assert sum(losses(result)[-5:]) / 5 < 0.7 * losses(result)[0]
    assert result.evaluations[-1].bits_per_byte < 0.7 * result.evaluations[0].bits_per_byte


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_repeats_itself_bit_by_bit(load: Load, precision: str) -> None:
    run = load(*quiet(f"train.precision={precision}"))
    assert losses(train(run)) == losses(train(run))


def test_another_seed_begins_elsewhere(load: Load) -> None:
    one, other = (train(load(*quiet("train.steps=1", f"train.seed={seed}"))) for seed in (0, 1))
    assert losses(one) != losses(other)


def test_micro_batches_make_the_step_of_the_whole_batch(load: Load) -> None:
    """Same sequences, same mean: equal but for the order of sums."""
    balance = "balance.sequence_loss=0.5"
    whole = train(load(*quiet("train.micro_batch=4", balance)))
    parts = train(load(*quiet("train.micro_batch=2", "train.accumulate=2", balance)))
    norms = [step.gradient_norm for step in parts.steps]
    assert norms == pytest.approx([step.gradient_norm for step in whole.steps], rel=1e-3)
    assert losses(parts) == pytest.approx(losses(whole), rel=1e-4)
    assert [step.tokens for step in parts.steps] == [step.tokens for step in whole.steps]
    assert parts.steps[0].load_imbalance == whole.steps[0].load_imbalance
    assert parts.steps[0].max_logit == pytest.approx(whole.steps[0].max_logit, rel=1e-5)


def test_gradients_of_bf16_weights_are_summed_in_fp32(load: Load) -> None:
    result = train(load(*quiet("train.precision=bf16", "train.steps=1", "train.accumulate=2")))
    assert {weight.dtype for weight in result.model.parameters()} == {torch.bfloat16}
    assert {weight.grad_dtype for weight in result.model.parameters()} == {torch.float32}


def test_router_biases_move_once_per_step_against_the_load_of_all_micro_batches(
    load: Load,
) -> None:
    result = train(load(*quiet("train.steps=1", "train.accumulate=3", "balance.bias_rate=0.25")))
    (router,) = result.model.routers()
    mean = router.load_E.float().mean()
    assert mean > 0
    assert torch.equal(router.bias, 0.25 * (mean - router.load_E).sign())


def test_a_load_is_that_of_one_step_and_of_no_evaluation(load: Load) -> None:
    result = train(load(*quiet("train.steps=3", "train.accumulate=3", "train.evaluate_every=1")))
    (router,) = result.model.routers()
    assert int(router.load_E.sum()) == 3 * 2 * 16 * 2  # micro-batches, sequences, tokens, top-k


def test_learning_rates_are_those_of_the_schedule_and_then_of_the_stages(load: Load) -> None:
    stage = "{name: long, steps: 2, sequence: 32, micro_batch: 1, lr: 0.0001}"
    result = train(load(*quiet(f"stages=[{stage}]")))
    lrs = [step.lr for step in result.steps]
    assert lrs[:8] == pytest.approx([0.0015, *[0.003] * 7])
    assert lrs[8:12] == sorted(lrs[8:12], reverse=True)
    assert lrs[12:] == [0.0001, 0.0001]
    assert [step.stage for step in result.steps[11:]] == ["train", "long", "long"]
    assert [one.step for one in result.evaluations] == [5, 10, 12, 14]


def test_bits_per_byte_are_the_losses_of_the_text_over_its_bytes(load: Load) -> None:
    """By hand from the model: every held-out token in turn, ends of documents included."""
    run = load(*quiet("train.steps=1", "train.final_sequences=null"))
    result = train(run)
    prepared = prepare(run.data, run.model.vocab)
    nats = 0.0
    with torch.no_grad():
        for tokens, targets in prepared.held_out(run.train.sequence, 2):
            chances = result.model.eval()(tokens).log_softmax(-1)
            for place, target in enumerate(targets.flatten().tolist()):
                if target >= 0:
                    nats -= chances.flatten(0, 1)[place, target].item()
    (last,) = result.evaluations
    assert last.tokens == len(prepared.held_out_tokens)
    assert last.bits_per_byte == pytest.approx(prepared.bits_per_byte(nats / last.tokens), rel=1e-5)


def test_settings_of_torch_are_left_as_they_were(load: Load) -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    train(load(*quiet("train.steps=1")))
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


def test_a_loss_that_is_no_number_ends_the_run_before_its_update(
    load: Load, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = step._gradients

    def burst(stage: Stage, trainee: Trainee) -> Outcome:
        outcome = work(stage, trainee)
        if trainee.step == 6:
            outcome.loss = float("nan")
        return outcome

    monkeypatch.setattr(step, "_gradients", burst)
    assert main([str(config)]) == 5
    lines = read_lines(config.parent / "out" / NAME)
    assert lines[-1] == {"kind": "diverged", "step": 6}
    monkeypatch.undo()
    assert train(load(), existing="resume").ended == "done"


def test_the_command_writes_metrics_checkpoints_and_configuration(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(config)]) == 0
    folder = config.parent / "out"
    names = {path.name for path in folder.iterdir()}
    assert names == {".lock", "run.json", "metrics.jsonl", "checkpoints"}
    said = capsys.readouterr()
    assert said.out == ""
    assert f"done after step 12; metrics and checkpoints are in `{folder}`" in said.err


def test_a_folder_with_a_run_is_not_touched_unasked(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(config), "--set", "train.steps=2"])
    log = config.parent / "out" / NAME
    before = log.read_bytes()
    assert main([str(config)]) == 2
    assert "TW231" in capsys.readouterr().err
    assert log.read_bytes() == before
    assert main([str(config), "--fresh", "--set", "train.steps=1"]) == 0
    assert [line["step"] for line in read_lines(log) if line["kind"] == "step"] == [1]


def test_a_folder_of_somebody_elses_is_not_touched(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = config.parent / "out"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    for flag in ("--fresh", "--resume"):
        assert main([str(config), flag]) == 2
        assert "exists and holds no run" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_two_processes_do_not_train_in_one_folder(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(config.parent / "out", "refuse"):
        assert main([str(config), "--resume"]) == 2
    assert "TW232 another process trains in" in capsys.readouterr().err


def test_another_configuration_is_refused_with_what_differs(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(config), "--set", "train.steps=2"])
    capsys.readouterr()
    changed = ["--set", "optimizer.lr=0.1", "--set", "model.moe.top_k=1", "--set", "train.keep=9"]
    assert main([str(config), "--resume", "--set", "train.steps=2", *changed]) == 3
    said = capsys.readouterr().err
    assert "TW234 the run in this folder has `optimizer.lr` 0.003, not 0.1" in said
    assert "TW234 the run in this folder has `model.moe.top_k` 2, not 1" in said
    assert said.count("TW234") == 2


def test_no_intact_checkpoint_is_an_error_and_no_new_beginning(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(config)])
    for manifest in (config.parent / "out" / "checkpoints").glob("*/manifest.json"):
        manifest.unlink()
    capsys.readouterr()
    assert main([str(config), "--resume"]) == 3
    said = capsys.readouterr().err
    assert "checkpoint `step-00000012` is refused: `manifest.json` is missing" in said
    assert "TW236 no checkpoint in" in said


@pytest.mark.parametrize(
    ("arguments", "code"), [(["nanoo"], 2), (["nano", "--resume", "--fresh"], 2), ([], 2)]
)
def test_a_wrong_command_exits_with_2(arguments: list[str], code: int) -> None:
    assert main(arguments) == code


def test_an_invalid_configuration_exits_with_3(config: Path) -> None:
    assert main([str(config), "--set", "train.steps=0"]) == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_a_usage_error(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(config), "--set", "train.device=cuda"]) == 2
    assert "TW237" in capsys.readouterr().err


@pytest.mark.parametrize("place", [0, 3])
def test_each_rank_of_a_machine_takes_a_gpu_of_its_own(
    place: int, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, chosen = load("train.device=auto"), gpus(monkeypatch, 4, place)
    with settings(run.train) as device:
        assert device == torch.device("cuda", place)
    assert chosen == [place]


def test_more_ranks_than_gpus_are_a_usage_error(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load("train.device=cuda")
    gpus(monkeypatch, 4, 4)
    with (
        pytest.raises(UsageError, match="rank 4 of this machine has no GPU"),
        settings(run.train),
    ):
        pass


def gpus(monkeypatch: pytest.MonkeyPatch, count: int, place: int) -> list[int]:
    """A machine with so many GPUs, on which this is the rank at `place`; what it chooses."""
    chosen: list[int] = []
    monkeypatch.setenv("LOCAL_RANK", str(place))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


ENDLESS = ["--set", "train.steps=100000", "--set", "train.checkpoint_every=0"]


def ended_by(process: int, number: signal.Signals, log: Path) -> int:
    """Send the signal once the run is on its way; returns the process's exit code."""
    try:
        for _ in range(600):
            if any(line["kind"] == "step" and line["step"] >= 3 for line in read_lines(log)):
                break
            time.sleep(0.1)
        os.kill(process, number)
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_with_a_checkpoint(
    config: Path, number: signal.Signals, code: int
) -> None:
    folder = config.parent / "out"
    process = in_a_child([str(config), *ENDLESS])
    assert ended_by(process, number, folder / NAME) == code
    last = read_lines(folder / NAME)[-1]
    assert (last["kind"], last["signal"]) == ("interrupted", number)
    assert (folder / "checkpoints" / f"step-{last['step']:08d}" / "manifest.json").is_file()


def test_a_second_signal_ends_the_process_at_once() -> None:
    with ending_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.exit_code == 143
        process = os.fork()
        if not process:
            os.kill(os.getpid(), signal.SIGINT)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130


@pytest.mark.slow
def test_the_module_is_a_command_that_says_what_it_does(config: Path) -> None:
    """A whole interpreter, as a person starts it."""
    words = [sys.executable, "-m", "reference.train", str(config), "--set", "train.steps=1"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        next(line for line in done.stderr.splitlines() if "bits per byte" in line),
        f"done after step 1; metrics and checkpoints are in `{config.parent / 'out'}`",
    ]
