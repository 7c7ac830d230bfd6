"""Whole runs on several ranks: their curve and weights are those of one process, they go on under
another layout, and they end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest
from numpy.typing import NDArray

from reference.config import RunSpec
from reference.ending import Stop
from reference.metrics import NAME, read_lines
from reference.parallel.timeline import FOLDER
from reference.train import Result, train
from tests.reference.parallel.ranks import run_ranks
from tests.reference.train.mini import Load
from twin.evidence.measured import step as measured
from twin.evidence.measured.run_folder import read as measured_run
from twin.evidence.traces.accounted import accounted
from twin.evidence.traces.answer import read_rank, together
from twin.evidence.traces.meetings import meetings

K2 = "{kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true, defer_weight_grad: true}"
EXACT = [
    "train.precision=fp64",
    "train.accumulate=8",
    "train.steps=5",
    "train.evaluate_every=3",
    "optimizer.qk_clip.threshold=0.02",
    "model.layers=4",
]
"""Some heads are clipped in every step."""
LAYOUTS: dict[str, tuple[int, list[str]]] = {
    "virtual chunks": (1, ["parallel.virtual=2", f"parallel.schedule={K2}"]),
    "replicas": (2, ["parallel.zero=0"]),
    "sharded states": (2, []),
    "experts": (2, ["parallel.expert=2"]),
    "pipeline": (2, ["parallel.pipeline=2", "parallel.schedule=zb_h1"]),
    "all of K2": (
        4,
        [
            "parallel.pipeline=2",
            "parallel.virtual=2",
            "parallel.expert=2",
            f"parallel.schedule={K2}",
        ],
    ),
    "both ways": (4, ["parallel.pipeline=2", "parallel.schedule=dualpipe", "parallel.expert=2"]),
    "eight ranks": (
        8,
        [
            "parallel.pipeline=2",
            "parallel.virtual=2",
            "parallel.expert=2",
            f"parallel.schedule={K2}",
        ],
    ),
}
Weights = dict[str, NDArray[np.float64]]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "all of K2" else pytest.mark.slow) for name in LAYOUTS],
)
def test_a_run_on_several_ranks_is_that_of_one(name: str, load: Load) -> None:
    ranks, layout = LAYOUTS[name]
    alone = train(load(*EXACT, "train.output=null"))
    found = run_ranks(ranks, trained, load(*EXACT, *layout, "train.output=null"))
    assert all(step.clipped_heads for step in alone.steps)
    assert_same(found, alone)


@pytest.mark.slow
def test_a_run_goes_on_under_another_layout(load: Load) -> None:
    alone = train(load(*EXACT, "train.output=null"))
    first, second = LAYOUTS["experts"], LAYOUTS["all of K2"]
    (stopped, *_) = run_ranks(first[0], trained, load(*EXACT, *first[1]), 3)
    assert stopped[0] == "interrupted"
    assert len(stopped[1]) in (3, 4)
    found = run_ranks(second[0], trained, load(*EXACT, *second[1]))
    assert_same(found, alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "layout"),
    [LAYOUTS["pipeline"], (4, ["parallel.pipeline=2", "parallel.expert=2"])],
    ids=["2 ranks", "4 ranks"],
)
def test_every_rank_writes_down_what_ran_when_and_a_profiler_saw_the_same(
    ranks: int, layout: list[str], load: Load, tmp_path: Path
) -> None:
    large = ["model.layers=4", "model.hidden=256", "train.sequence=256", "model.moe.width=256"]
    about = ["train.accumulate=8", "train.steps=4", "train.timeline=true", "train.profile=2"]
    run_ranks(ranks, trained, load(*layout, *large, *about))
    names = sorted(path.name for path in (tmp_path / "out" / FOLDER).iterdir())
    assert names == [f"rank-{rank:05d}.jsonl" for rank in range(ranks)]
    written = measured.trace(measured_run(tmp_path / "out"), 4)
    profiled = together(
        rank
        for path in sorted((tmp_path / "out" / "profile").iterdir())
        for rank in read_rank(path)
    )
    for rank, begun, own in zip(
        profiled, meetings(profiled).begun, written.breakdown_ns, strict=True
    ):
        found = accounted(rank, 4, begun=begun)
        # A timeline's step begins with the first rank, and ends with the last.
        around = written.step_ns - found.step_ns
        assert around < 0.1 * written.step_ns
        for cause, time in found.row.items():
            assert abs(time - own[cause]) < 0.02 * written.step_ns + around, (rank.rank, cause)


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on(config: Path, load: Load) -> None:
    overrides = ["train.steps=4000", "train.checkpoint_every=2", "parallel.pipeline=2"]
    overrides += ["train.accumulate=4", "train.evaluate_every=0", "schedule.decay_steps=3992"]
    words = [word for one in overrides for word in ("--set", one)]
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    job = subprocess.Popen(
        [sys.executable, *command, "-m", "reference.train", str(config), *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        log = config.parent / "out" / NAME
        wait_for(lambda: len(read_lines(log)) > 8, job)
        os.kill(children(job.pid)[-1], signal.SIGKILL)
        begun = monotonic()
        _, said = job.communicate(timeout=60)
    finally:
        job.kill()
    assert monotonic() - begun < 30
    assert job.returncode != 0
    assert "another rank is gone, so this one ends" in said
    done = max(line["step"] for line in read_lines(log) if line["kind"] == "checkpoint")
    again = run_ranks(2, trained, load(*overrides), 2)
    assert again[0][0] == "interrupted"
    assert len(again[0][1]) > done


def trained(
    rank: int, ranks: int, run: RunSpec, stop_after: int = 0
) -> tuple[str, list[float], Weights]:
    """How a run ended on one rank, its losses, and the weights that it holds there."""
    del ranks
    stop = Stop()

    def watch(step: object) -> None:
        del step
        nonlocal stop_after
        stop_after -= 1
        if stop_after == 0:
            stop.signal = 15

    result = train(run, existing="resume", stop=stop, progress=watch if rank == 0 else None)
    return result.ended, [step.loss for step in result.steps], weights(run, result)


def wait_for(there: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    end = monotonic() + 120
    while not there():
        assert job.poll() is None, job.communicate()[1]
        assert monotonic() < end
        sleep(0.05)


def children(of: int) -> list[int]:
    """The processes that a process has started."""
    text = Path(f"/proc/{of}/task/{of}/children").read_text(encoding="utf-8")
    return [int(word) for word in text.split()]


def free_port() -> str:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def weights(run: RunSpec, result: Result) -> Weights:
    """By name, those of experts one by one."""
    found: Weights = {}
    for part in result.parts.values():
        first = part.part.first_expert(run.model)
        for name, tensor in part.state_dict().items():
            if "experts" in name:
                stack = enumerate(tensor, first)
                found |= {f"{name}.{index}": one.numpy() for index, one in stack}
            else:
                found[name] = tensor.numpy()
    return found


def assert_same(found: Sequence[tuple[str, list[float], Weights]], alone: Result) -> None:
    whole = weights_of(alone)
    seen: set[str] = set()
    losses = found[0][1]
    assert losses == pytest.approx([step.loss for step in alone.steps], rel=1e-12)
    for ended, _, own in found:
        assert ended == "done"
        for name, value in own.items():
            np.testing.assert_allclose(value, whole[name], rtol=0, atol=1e-11, err_msg=name)
        seen |= own.keys()
    assert seen == whole.keys()


def weights_of(alone: Result) -> Weights:
    found: Weights = {}
    for name, tensor in alone.model.state_dict().items():
        if "experts" in name:
            found |= {f"{name}.{index}": one.numpy() for index, one in enumerate(tensor)}
        else:
            found[name] = tensor.numpy()
    return found
