"""What to measure next: shares of the interval, in the order of what a minute takes away."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from math import log, sqrt
from pathlib import Path

import pytest

from twin.cli.main import main
from twin.evidence.calibrate.cluster_fit import cluster_factors
from twin.evidence.calibrate.kernel_fit import tasks
from twin.evidence.calibrate.missing import LEFT, Missing, what_is_missing
from twin.explore.study.influence import influence
from twin.loading import load, load_part
from twin.loading.files import read_data
from twin.reports.interval import FAMILY, NORMAL
from twin.scenario import Scenario
from twin.spec.calibration import StreamingSpec

PLAN = """\
schema: 1
name: GPT-3 1.7B on 16 H100
model: gpt-1.7b
cluster: {node: h100-8gpu, nodes: 2, fabric: rail-fat-tree-400g}
parallel: {schedule: 1f1b, tensor: 8}
train: {tokens: 1T, global_batch: 16seq, sequence: 2048tok, optimizer: adamw}
software: null
"""
INTERVAL = (0.8, 1.3)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("missing") / "plan.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def scenario(plan: Path) -> Scenario:
    found = load(plan)
    assert isinstance(found, Scenario)
    return found


@pytest.fixture(scope="module")
def found(scenario: Scenario) -> Missing:
    return what_is_missing(scenario, 1.0, INTERVAL)


def test_a_number_explains_the_square_of_half_its_change(
    scenario: Scenario, found: Missing
) -> None:
    """nccl-tests on one node: NVLink's three numbers, but for what stays of each."""
    half = log(INTERVAL[1] / INTERVAL[0]) / 2
    moved = {one.path: (one.span / 2 / half) ** 2 for one in influence(scenario)}
    (own,) = (one for one in found.measurements if one.name == "nccl-one-node")
    nvlink = sum(share for path, share in moved.items() if ".nvlink." in path)
    assert own.share == pytest.approx(nvlink * (1 - LEFT))
    assert own.half == pytest.approx(half * sqrt(1 - own.share))
    assert "-g 8" in own.command


def test_what_takes_most_away_per_minute_comes_first(found: Missing) -> None:
    rates = [one.share / one.minutes for one in found.measurements]
    assert rates == sorted(rates, reverse=True)


def test_step_times_leave_the_scatter_of_one_source(found: Missing) -> None:
    (steps,) = (one for one in found.measurements if one.name == "steps")
    assert steps.half == pytest.approx(NORMAL * FAMILY)
    assert steps.minutes == 9 + 1  # 60 steps of a second


def test_a_measured_number_has_little_left_to_tell(plan: Path, found: Missing) -> None:
    """A node with a narrow range beside the plan, as a calibration writes it."""
    part = plan.parent / "catalog" / "nodes" / "ours.yaml"
    part.parent.mkdir(parents=True)
    part.write_text(OURS)
    measured = load(plan, ("cluster.node=ours",))
    assert isinstance(measured, Scenario)
    after = what_is_missing(measured, 1.0, INTERVAL)
    shares = [
        sum(one.share for one in all_of.measurements if one.name == "nccl-one-node")
        for all_of in (found, after)
    ]
    assert shares[1] < shares[0] / 10


OURS = """\
extends: h100-8gpu
name: ours
kind: assumed
nvlink:
  efficiency: {value: 0.75, range: [0.745, 0.755]}
  latency: {value: 1.0us, range: [0.97us, 1.03us]}
  own_share: {value: 0.35, range: [0.34, 0.36]}
"""


def test_measurements_promise_what_a_calibration_fits() -> None:
    """Every pattern is a number of some fit, and every fitted number is in some measurement."""
    path = Path(__file__).parents[3] / "twin/evidence/calibrate/missing.yaml"
    patterns = {p for own in read_data(path).values() for p in own["numbers"]} - {"*"}
    base = load_part("calibrations", "h100-hopper-bf16").spec
    kernels = {
        number for task in tasks(base) for own in task.sets for f in own for number in f.numbers
    }
    cluster = {f"cluster.{factor.name}" for factor in cluster_factors()}
    kinds = {f"calibration.streaming.{kind}.bandwidth" for kind in StreamingSpec.model_fields}
    fitted = kernels | cluster | kinds | {"calibration.gemm", "calibration.grouped_gemm"}
    assert all(any(fnmatchcase(one, p) for one in fitted) for p in patterns)
    missed = {one for one in fitted if not any(fnmatchcase(one, p) for p in patterns)}
    assert missed <= {"cluster.node.nic.exchange_start"}  # 0 in most nodes, so nothing to fit


def test_the_command_lists_measurements(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--what-is-missing", str(plan), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    low, high = document["interval"]
    assert low < document["step_seconds"] < high
    assert document["measurements"][0]["minutes"] > 0


def test_a_command_without_a_source_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate"]) == 2
    assert "--what-is-missing" in capsys.readouterr().err
