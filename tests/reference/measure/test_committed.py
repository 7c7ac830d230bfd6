"""Measurements that are kept in the repository: their parts follow from their points, and the twin
comes near the training steps that were measured beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import twin
from reference.machine import Machine
from reference.measure.catalog import EAGER
from reference.measure.clock import Statistic
from reference.measure.limits import device_limits
from reference.measure.points import read_points
from reference.measure.profile import fit_profile
from twin.loading import load_part

MEASURED = Path(__file__).parents[3] / "scenarios" / "measured"
FOLDERS = sorted(points.parent for points in MEASURED.glob("*/points"))
STEPS = [path for folder in FOLDERS for path in sorted(folder.glob("step-*.yaml"))]


def machine_of(folder: Path) -> Machine:
    """The machine that the points of a folder are of."""
    with min((folder / "points").glob("*.jsonl")).open(encoding="utf-8") as lines:
        return Machine(**json.loads(next(lines))["machine"])


EAGER_TOO = [f for f in FOLDERS if (f / "catalog/calibrations" / f"{f.name}{EAGER}.yaml").exists()]
PROFILES = [(folder, False) for folder in FOLDERS] + [(folder, True) for folder in EAGER_TOO]


@pytest.mark.parametrize(("folder", "eager"), PROFILES, ids=str)
def test_a_profile_is_what_its_points_say(folder: Path, eager: bool) -> None:
    points, machine = read_points(folder), machine_of(folder)
    profile = folder / "catalog" / "calibrations" / f"{folder.name}.yaml"
    head = profile.read_text(encoding="utf-8").partition("\n")[0]
    statistic: Statistic = "least" if "are the least" in head else "median"
    limits = device_limits(points, machine, statistic)
    found = fit_profile(points, machine, limits, statistic, eager=eager)
    text = load_part("calibrations", folder.name + (EAGER if eager else ""), [folder]).spec
    for key, number in found.numbers.items():
        value: object = text
        for name in key:
            value = getattr(value, name)
        # BLAS adds in another order on another CPU, which moves a flat optimum by up to 0.4 %.
        assert value == pytest.approx(number.value, rel=5e-3), key
    assert text.gpu == load_part("nodes", folder.name, [folder]).spec.gpu.name


@pytest.mark.parametrize("file", STEPS, ids=lambda path: path.name)
def test_the_twin_comes_near_a_step_that_was_measured_beside_its_profile(file: Path) -> None:
    """Products, attention and memory were fitted apart; nothing was fitted to the step."""
    model, _, shape = file.stem.removeprefix("step-").rpartition("-")
    sequences, tokens = map(int, shape.split("x"))
    (step,) = [
        point
        for point in read_points(file.parent)
        if point.op == f"step:{model}"
        and point.dtype == "bf16"
        and point.shape == {"sequences": sequences, "tokens": tokens}
    ]
    plan = twin.plan(twin.load(file))
    answer = twin.report(plan, twin.simulate(twin.lower(plan))).kpis["step_seconds"]
    assert answer == pytest.approx(step.timing.least, rel=0.35)
