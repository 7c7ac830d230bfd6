"""What trainers print of a step is read like a log of JSON lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from twin.evidence.live.follower import follow
from twin.evidence.live.log_lines import LineReader
from twin.evidence.live.trainer_log import Log

MEGATRON = (
    " [2026-03-01 10:00:{at:02d}] iteration {step:8d}/    400 | consumed samples: {samples:12d} |"
    " elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 401.2 |"
    " learning rate: 1.0E-05 | global batch size:    64 | lm loss: 1.1E+01 |\n"
)
TITAN = (
    "[rank0]:[titan] 2026-02-24 19:46:{at:06.3f} - root - INFO - \x1b[31mstep: {step:2d}  "
    "\x1b[32mloss:  7.6  \x1b[38;2;180;60;0mgrad_norm: 26.6  memory: 66.91GiB(37.51%)  "
    "tps: 10,050  tflops: 314.7\n"
)


def log_of(path: Path, *lines: str) -> Log:
    path.write_text("".join(lines))
    log = Log(path)
    log.look()
    return log


def test_megatrons_lines_tell_steps_tokens_and_the_end(tmp_path: Path) -> None:
    lines = [MEGATRON.format(at=n, step=10 * n, samples=640 * n, ms=2500.0) for n in range(1, 9)]
    before = "  seq_length ...................................... 4096\n"
    log = log_of(tmp_path / "out", "> building train datasets\n", before, *lines)
    assert [(one.step, one.seconds, one.tokens) for one in log.steps[:2]] == [
        (10, 2.5, 640 * 4096),
        (20, 2.5, 1280 * 4096),
    ]
    assert (log.lines.damaged, log.lines.steps, log.last) == (0, 400, 80)
    found = follow(tmp_path / "out").look()
    assert (found.step, found.steps) == (80, 400)
    assert found.pace is not None
    assert found.tokens_per_second == pytest.approx(64 * 4096 / 2.5)
    assert found.remaining is not None
    assert found.remaining.seconds == pytest.approx(320 * 2.5)
    assert not any("JSON" in note for note in found.notes)


def test_steps_of_torchtitan_last_from_line_to_line_whichever_rank_prints(tmp_path: Path) -> None:
    lines = [TITAN.format(at=10 + 1.5 * n, step=n) for n in range(1, 5) for _ in range(8)]
    log = log_of(tmp_path / "out", *lines)
    assert [(one.step, one.seconds) for one in log.steps] == [(2, 1.5), (3, 1.5), (4, 1.5)]
    assert log.cut == 0


@pytest.mark.parametrize(
    ("line", "step", "seconds"),
    [
        ("steps: 10 loss: 2.1 iter time (s): 1.250 samples/sec: 51.2", 10, 1.25),
        (
            "(TaskRunner pid=7) step:3 - actor/loss:0.1 - timing_s/gen:80.1 - timing_s/step:123.4",
            3,
            123.4,
        ),
        (
            "Training epoch 0, iteration 7/100 | lr: 1e-4 | train_step_timing in s: 3.21 | x",
            7,
            3.21,
        ),
    ],
)
def test_other_trainers_lines(line: str, step: int, seconds: float) -> None:
    facts = LineReader().facts(line.encode())
    assert facts is not None
    assert (facts["step"], facts["seconds"]) == (step, seconds)


def test_a_line_of_a_json_log_that_is_none_is_counted(tmp_path: Path) -> None:
    log = log_of(tmp_path / "out", '{"step": 1, "seconds": 2.0}\n', "oops\n", '{"step": \n')
    assert (len(log.steps), log.lines.damaged) == (1, 2)


def test_a_long_line_takes_no_longer_than_its_beginning() -> None:
    assert LineReader().facts(b"iteration 1/ 2 |" + b"a" * 10_000_000) is None
    assert LineReader().facts(b"step: " * 1_000_000) is None
