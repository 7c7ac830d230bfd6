"""A day on a GPU machine: its plan, how it goes on, and what it hands over. Stand-ins take the
place of processes; `test_ranks` runs ranks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import twin
from reference.config import load_run
from reference.machine import inspect
from reference.measure import day as days
from reference.measure.day import Day, attempts, command, main, run_day, run_process
from reference.measure.handover import hand_over, seals
from reference.measure.layouts import STEPS, WARM, read_steps, run_of
from reference.measure.plan import LAYOUTS, Item, assumed, layouts, narrowed, plan, text
from reference.measure.points import MeasuredPoint, open_folder, write_group
from tests.reference.measure.machines import H200, exactly
from twin.evidence.loop.trainer import configuration, problems

ELSEWHERE = {"node.nic.efficiency", "node.nic.latency", "node.nic.exchange_peer"}
"""One machine cannot tell; the plan says what to type on two."""
SCENARIOS = [path for gpu in ("h100", "h800") for path in layouts(gpu)]


def item(name: str, seconds: float = 10.0) -> Item:
    return Item(name, seconds, "something", (), "reference.measure", ("--only", name))


class Machine:
    """Runs what it is told, and notes it; an item lasts its estimate."""

    def __init__(self, codes: dict[str, list[int]] | None = None) -> None:
        self.codes, self.ran, self.clock = codes or {}, list[str](), 0.0

    def run(self, words: Sequence[str], log: Path, seconds: float) -> int:
        assert words
        assert seconds >= days.LEAST
        self.ran.append(log.stem)
        self.clock += 10.0
        left = self.codes.get(log.stem, [])
        return left.pop(0) if left else 0

    def now(self) -> float:
        return self.clock


def asked(folder: Path, seconds: float = 1e9) -> Day:
    return Day(folder, seconds, "cpu", True, "here")


def test_every_number_that_the_flagship_assumes_has_an_item_that_narrows_it() -> None:
    found = {field for one in plan(8, "h800") for field in narrowed(one)}
    assert set(assumed()) - found == ELSEWHERE
    assert {"calibration.expert_contention", "calibration.expert_wait"} <= found


def test_the_plan_fits_half_an_hour_and_says_seconds_and_intervals(capsys: Any) -> None:
    items = plan(8, "h100")
    assert sum(one.seconds for one in items) <= 30 * 60
    assert sum(one.scenario is not None for one in items) == 10
    assert main(["--plan"]) == 0
    said = capsys.readouterr().out
    assert said == text(items) + "\n"
    assert "calibration.expert_contention: 0.0, assumed, 0.0 to 0.31" in said
    assert "--nnodes 2" in said


def test_one_gpu_has_no_item_of_several() -> None:
    assert {one.ranks for one in plan(1, "h100")} == {0}
    assert "collectives" not in {one.name for one in plan(1, "h100")}
    assert not any(one.scenario for one in plan(4, "h100")), "the layouts are of eight"


def test_a_day_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first, items = Machine(), [item(name) for name in "abcd"]
    assert run_day(asked(tmp_path, 25), items, first.run, len, first.now) == ["c", "d"]
    then = Machine()
    assert run_day(asked(tmp_path), items, then.run, len, then.now) == []
    assert (first.ran, then.ran) == (["a", "b"], ["c", "d"])


def test_an_item_that_fails_twice_is_left_out_and_ends_no_other(tmp_path: Path) -> None:
    machine, items = Machine({"a": [1, 124]}), [item("a"), item("b")]
    assert run_day(asked(tmp_path), items, machine.run, len, machine.now) == ["a"]
    assert run_day(asked(tmp_path), items, machine.run, len, machine.now) == []
    assert run_day(asked(tmp_path), items, machine.run, len, machine.now) == []
    assert machine.ran == ["a", "b", "a"]
    assert attempts(tmp_path) == {"a": [1, 124], "b": [0]}


def test_a_process_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    words = ["sh", "-c", "echo before; sleep 60 & echo $!; sleep 60"]
    assert run_process(words, tmp_path / "log", 0.3) == 124
    said, child = (tmp_path / "log").read_text().split()
    assert said == "before"
    deadline = time.monotonic() + 20.0
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(process: str) -> bool:
    """A zombie does not: whoever adopts it has not looked yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_ranks_are_started_by_torchrun_and_a_layout_with_its_configuration(tmp_path: Path) -> None:
    of = {one.name: one for one in plan(8, "h100")}
    words = command(asked(tmp_path), of["ranks"])
    assert words[2:8] == [
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "8",
        "-m",
        "reference.measure.ranks",
    ]
    assert words[8:] == ["--output", str(tmp_path), "--device", "cpu", "--name", "here", "--quick"]
    *_, module, path, fresh = command(asked(tmp_path), of["layout expert-8"])
    assert (module, fresh) == ("reference.train", "--fresh")
    run = load_run(path)
    assert (run.parallel.expert, run.train.steps) == (8, STEPS)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_trainer_runs_what_was_predicted(path: Path) -> None:
    """By the closed loop's own translation, which the reference may not import."""
    planned = twin.plan(twin.load(path))
    assert problems(planned) == []
    want, got = configuration(planned, Path("x"), STEPS, None), run_of(path, Path("x"))
    if got["parallel"]["layers"] is None:
        assert planned.scenario.parallel.pipeline == 1, "write the layers: the twin chooses others"
        got["parallel"]["layers"] = want["parallel"]["layers"]
    for section in ("model", "optimizer", "balance", "parallel", "memory"):
        assert got[section] == want[section], section
    same = ("steps", "sequence", "micro_batch", "accumulate")
    assert [got["train"][name] for name in same] == [want["train"][name] for name in same]


def kernels() -> list[dict[str, Any]]:
    return json.loads((LAYOUTS / "h100" / "kernels.json").read_text())["rows"]


def point(op: str, shape: dict[str, int], seconds: float) -> MeasuredPoint:
    return MeasuredPoint("gemm", op, shape, "bf16", 1e9, 1e6, 1, exactly(seconds))


def trained(folder: Path, seconds: float, steps: int = STEPS) -> None:
    folder.mkdir(parents=True)
    lines = [
        {"kind": "step", "step": step, "seconds": 9.0 if step <= WARM else seconds, "peak_bytes": 7}
        for step in range(1, steps + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_steps_that_warm_up_do_not_count(tmp_path: Path) -> None:
    trained(tmp_path / "run", 0.5)
    found = read_steps("run", tmp_path / "run")
    assert (found.seconds, found.steps, found.peak_bytes) == (0.5, STEPS - WARM, 7)
    trained(tmp_path / "short", 0.5, steps=3)
    with pytest.raises(LookupError, match="3 steps"):
        read_steps("short", tmp_path / "short")


def test_what_is_handed_over_judges_the_seals_and_lies_over_a_checkout(tmp_path: Path) -> None:
    machine, items = replace(H200, device="NVIDIA H100", name="here"), plan(8, "h100")
    points = [point(row["op"], row["shape"], 1.01 * row["seconds"]) for row in kernels()]
    open_folder(tmp_path, machine)
    write_group(tmp_path, "gemm", machine, {}, (points, ()))
    sealed = seals(LAYOUTS / "h100")
    told = sealed["expert-8"]["prediction"]["kpis"]["step_seconds"]
    trained(tmp_path / "runs" / "expert-8", 2 * told)
    trained(tmp_path / "runs" / "data-8", 99.0)
    report = hand_over(tmp_path, machine, items, "h100").read_text()
    assert "There is no profile yet: points of launch, bandwidth are missing." in report
    count = sum(row["op"] == "gemm" for row in kernels())
    assert f"| gemm | `{count}` | `-1.0%` | `{count} of {count}` |" in report
    assert "| `calibration.expert_wait` | `0us` | `0us` to `2.0ms` | not measured |" in report
    (row,) = [line for line in report.splitlines() if line.startswith("| expert-8")]
    assert "`-50%`" in row
    (row,) = [line for line in report.splitlines() if line.startswith("| data-8 ")]
    assert row.endswith("| no |")
    place = tmp_path / "pull-request" / "scenarios" / "measured" / "here"
    assert (place / "report.md").read_text() == report
    assert len((place / "layouts.jsonl").read_text().splitlines()) == 2
    assert "here" in (tmp_path / "pull-request" / "README.md").read_text()


@pytest.mark.slow  # real processes: three starts of torch, two ranks that train
def test_a_day_on_a_cpu(tmp_path: Path) -> None:
    small = LAYOUTS.parent / "reference" / "pp2-1gbps.yaml"
    ranks = Item("ranks", 30, "exchanges", (), "reference.measure.ranks", (), 2)
    layout = Item("layout pp2", 60, "a step", (), "reference.train", (), 2, small)
    items, said = [item("launch"), ranks, layout], list[str]()
    machine = inspect(torch.device("cpu"), "here")
    assert run_day(asked(tmp_path), items, run_process, said.append) == [], said
    report = hand_over(tmp_path, machine, items, "h100").read_text()
    assert "| all_reduce |" in report
    assert "| pp2-1gbps |" in report
    assert set(attempts(tmp_path)) == {"launch", "ranks", "layout pp2"}
    assert all(codes == [0] for codes in attempts(tmp_path).values())
