"""Layouts that follow a profile of this machine: by a machine and runs that are made up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from twin.evidence.loop.layouts import ReferenceLayout, find
from twin.evidence.loop.machine_profile import (
    MachineProfile,
    Paces,
    condition_of,
    engine_host,
    grafted,
)
from twin.evidence.loop.run import REPEATS, Followed, Prepared, RunOptions, change
from twin.inference.seconds import decode_pass
from twin.kinds.iteration.plan import plan as plan_loop
from twin.loading import load_part

TWO = Path("scenarios/measured/epyc-zen5-2cores-torch2.13")
ONE = Path("scenarios/measured/epyc-zen5-1core-torch2.13")


class Machine:
    """Answers with paces in turn."""

    def __init__(self, *paces: float) -> None:
        self.left = list(paces)
        self.asked: list[Sequence[Paces]] = []

    def paces(self, layout: ReferenceLayout) -> Paces:
        del layout
        return {"gemm": self.left.pop(0)}

    def at(self, layout: ReferenceLayout, paces: Sequence[Paces], place: Path) -> ReferenceLayout:
        del place
        self.asked.append(paces)
        mean = sum(one["gemm"] for one in paces) / len(paces)
        return replace(layout, drawn=f"{mean:.3f}")


class Named(Prepared[str]):
    """Its outcome is the name of its layout."""

    runs = 0

    @property
    def about(self) -> str:
        return ""

    def done(self, turn: int) -> bool:
        return self.place(turn).exists()

    def run(self, turn: int) -> None:
        self.place(turn).mkdir(exist_ok=True)
        Named.runs += 1

    def outcome(self) -> str:
        return self.layout.name


def followed(machine: Machine, folder: Path, rounds: int = 1) -> Followed[str]:
    (layout,) = find(["bare-pp2-gpipe-1gbps"])
    options = RunOptions(folder, shaped=True, rounds=rounds)
    Named.runs = 0
    return Followed(layout, options, cast("MachineProfile", machine), Named)


def test_a_run_is_compared_at_the_mean_of_the_paces_around_it(tmp_path: Path) -> None:
    own = followed(Machine(1.0, 1.06), tmp_path)
    own.run(0)
    assert own.done(0)
    assert own.outcome() == "1.030"


def test_a_run_during_which_the_pace_changed_is_repeated(tmp_path: Path) -> None:
    own = followed(Machine(1.0, 1.3, 1.3, 1.28), tmp_path)
    own.run(0)
    assert Named.runs == 2
    assert own.outcome() == "1.290"


def test_a_machine_that_never_rests_is_told_at_its_mean(tmp_path: Path) -> None:
    own = followed(Machine(*[1.0, 1.3] * REPEATS), tmp_path)
    own.run(0)
    assert Named.runs == REPEATS
    assert own.outcome() == "1.150"


def test_rounds_count_together(tmp_path: Path) -> None:
    own = followed(Machine(1.0, 1.0, 1.2, 1.2), tmp_path, rounds=2)
    own.run(0)
    assert not own.done(1)
    own.run(1)
    assert own.outcome() == "1.100"


def test_a_change_is_that_of_the_middle_group() -> None:
    before = {"gemm": 1.0, "host": 1.0, "grouped": 1.0}
    assert change(before, {"gemm": 1.0, "host": 1.5, "grouped": 1.1}) == pytest.approx(0.1)


def test_ranks_that_exchange_have_the_machine_and_keep_their_links() -> None:
    (layout,) = find(["bare-dp2-5gbps"], sets=["calibration.gemm=0.11"])
    assert condition_of(layout) == "company"
    made, own = grafted(layout.scenario, TWO.name, TWO), layout.scenario
    assert made.calibration == load_part("calibrations", TWO.name, (TWO,)).spec
    assert made.calibration.gemm != own.calibration.gemm
    assert made.cluster.node.nic == own.cluster.node.nic
    assert made.cluster.node.nvlink == own.cluster.node.nvlink
    assert made.cluster.node.gpu == load_part("gpus", TWO.name, (TWO,)).spec
    assert made.software == load_part("software", TWO.name, (TWO,)).spec


def test_collectives_begin_as_late_as_exchanges_between_computing_ranks_do(tmp_path: Path) -> None:
    """The middle one of three rates, 1.12 ms, is a hop of 160 us and 16 of 60 us."""
    shutil.copytree(TWO, tmp_path / "two")
    file = tmp_path / "two" / "points" / "messages.jsonl"
    with file.open("a") as points:
        for mean in (9e-3, 1.12e-3, 0.4e-3):
            points.write(json.dumps({"op": "exchange_start", "timing": {"mean": mean}}) + "\n")
    (layout,) = find(["bare-ep2-1gbps"])
    made = grafted(layout.scenario, TWO.name, tmp_path / "two").cluster.node
    assert made.nic == layout.scenario.cluster.node.nic
    assert made.nvlink.latency == pytest.approx(60e-6)


def test_a_loop_has_the_engine_of_the_machine_and_its_own_batch() -> None:
    (layout,) = find(["rl-narrow"], sets=["rl.iteration.sleep=1s"])
    assert condition_of(layout) == "alone"
    made = cast("Any", grafted(layout.scenario, ONE.name, ONE)).rl
    engine = made.rollout.engine
    assert engine.batch == 8
    assert engine.calibration == load_part("calibrations", ONE.name, (ONE,)).spec
    assert 0 < engine.sequence_overhead < engine.step_overhead < 0.01
    assert made.iteration.sleep < 0.01


def test_an_engines_host_is_the_line_that_its_steps_leave_beside_kernels(tmp_path: Path) -> None:
    (layout,) = find(["rl-few"])
    server = plan_loop(layout.scenario).server
    (tmp_path / "points").mkdir()
    lines: list[str] = [json.dumps({"machine": {}})]
    for batch in (1, 4, 16):
        shape = {"sequences": batch, "cached": 64}
        kernels = decode_pass(server, batch, 64).seconds
        for op, seconds in (("engine_pass", kernels + 1e-3), ("engine_host", 2e-4 * batch)):
            lines.append(json.dumps({"op": op, "shape": shape, "timing": {"median": seconds}}))
    (tmp_path / "points" / "serving.jsonl").write_text("\n".join(lines))
    found = engine_host(server, tmp_path)
    assert (found.step, found.sequence) == pytest.approx((1e-3, 2e-4))
