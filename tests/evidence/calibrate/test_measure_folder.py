"""A folder of `reference.measure` becomes a profile, by the twin's own prices."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import mean
from typing import get_args

import pytest

from twin.arch.ops import SCAN_CLASSES, OpClass
from twin.errors import UsageError
from twin.evidence.calibrate.calibrate import calibrate
from twin.evidence.calibrate.factors import replaced
from twin.evidence.calibrate.kernel_fit import fit_kernels, with_law
from twin.evidence.calibrate.kernels import Kernel, published
from twin.evidence.calibrate.measure_folder import read_folder
from twin.evidence.calibrate.request import CalibrationRequest
from twin.evidence.calibrate.result import Calibration
from twin.evidence.calibrate.step_fit import difference
from twin.evidence.calibrate.write import write
from twin.loading import load, load_part
from twin.loading.files import shipped_folder

FOLDER = shipped_folder() / "measured" / "epyc-zen4-1core-torch2.13"


@pytest.fixture(scope="module")
def own() -> Calibration:
    """From the profile that was fitted on the same points."""
    return calibrate(CalibrationRequest(FOLDER, name="whole"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    """From a profile of another device that has no law of products."""
    folder = tmp_path_factory.mktemp("measured") / FOLDER.name
    shutil.copytree(FOLDER, folder)
    profile = folder / "catalog" / "calibrations" / "without-law.yaml"
    profile.write_text(
        "extends: a100-megatron\nname: without-law\ngpu: A100-80GB\nsource: twin\n"
        "kind: assumed\nmatmuls: null\n"
    )
    return calibrate(CalibrationRequest(folder, base="without-law", name="cpu"))


def test_every_point_is_a_kernel_a_step_or_counted() -> None:
    found = read_folder(FOLDER)
    lines = [p.read_text().splitlines()[1:] for p in (FOLDER / "points").glob("*.jsonl")]
    counted = len(found.kernels) + len(found.steps) + sum(found.left_out.values())
    assert counted == sum(map(len, lines))
    none = {"permute", *SCAN_CLASSES}  # no point has them
    assert {k.op_class for k in found.kernels} == set(get_args(OpClass)) - none
    assert [step.name for step in found.steps] == [
        "step-kimi-k2-nano-4x256",
        "step-kimi-k2-tiny-1x1024",
    ]


@pytest.mark.slow
def test_a_base_of_another_device_comes_as_close_as_the_devices_own(
    own: Calibration, other: Calibration
) -> None:
    missed = [
        [abs(row.left_out or 0.0) for row in one.rows if row.task == "products"]
        for one in (other, own)
    ]
    assert mean(missed[0]) < mean(missed[1]) + 0.02
    assert any("another GPU" in note for note in other.notes)
    assert any("these very points" in note for note in own.notes)


def test_where_the_base_has_seen_the_points_nothing_is_fitted(own: Calibration) -> None:
    products = [trial for trial in own.tried if trial.task == "products" and trial.taken]
    assert [trial.factors for trial in products] == [{}]
    assert {row.use for row in own.rows if row.task == "steps"} == {"check"}


def test_laws_that_made_kernels_are_found_again() -> None:
    """The H100's rows, priced by a profile with other numbers."""
    profile = load_part("calibrations", "h800-hopper-bf16").spec
    gpu = load_part("gpus", "h100").spec
    truth = profile
    for path, number in (("efficiency", 0.6), ("launch", 12e-6), ("ramp", 400.0)):
        truth = replaced(truth, f"matmuls.bf16.{path}", number)
    kernels = [
        Kernel(k.file, k.row, k.shape, k.op_class, k.work, k.predicted(gpu, truth))
        for k in published("gemm-h100-bf16")
    ]
    found, (done,) = fit_kernels(kernels, gpu, profile)
    assert found.matmuls is not None
    assert found.matmuls.bf16 is not None
    assert found.matmuls.bf16.efficiency == pytest.approx(0.6, rel=0.03)
    assert found.matmuls.bf16.launch == pytest.approx(12e-6, rel=0.1)
    assert found.matmuls.bf16.ramp == pytest.approx(400.0, rel=0.15)
    assert max(abs(done.chosen.left_out)) < 0.03


def test_a_base_without_a_law_gets_one_from_products_enough() -> None:
    base = load_part("calibrations", "b200-blackwell-bf16").spec
    kernels = published("gemm-h100-bf16")
    assert with_law(base, kernels[:11]) == base
    law = with_law(base, kernels).matmuls
    assert law is not None
    assert law.bf16 is not None
    assert law.bf16.efficiency == base.gemm
    known = load_part("calibrations", "h800-hopper-bf16").spec
    assert with_law(known, kernels) is known


def test_a_written_profile_with_a_new_law_runs(other: Calibration, tmp_path: Path) -> None:
    found = other
    write(found, tmp_path)
    spec = load_part("calibrations", "cpu", [tmp_path]).spec
    assert spec.matmuls is not None
    assert spec.matmuls.bf16 is not None
    assert found.profile.matmuls is not None
    assert found.profile.matmuls.bf16 is not None
    expected = found.profile.matmuls.bf16.efficiency
    assert spec.matmuls.bf16.efficiency == pytest.approx(expected, rel=1e-3)
    assert spec.matmuls.bf16.sides == (8, 2048)


def test_a_profile_over_a_base_that_is_not_shipped_is_written_whole(
    own: Calibration, tmp_path: Path
) -> None:
    found = own
    write(found, tmp_path)
    spec = load_part("calibrations", "whole", [tmp_path]).spec
    assert spec.attention_forward_ramp == pytest.approx(found.profile.attention_forward_ramp)
    assert spec.dispatch == pytest.approx(found.profile.dispatch)


def test_what_is_no_folder_of_points_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"TW350 .* holds no measurement"):
        calibrate(CalibrationRequest(tmp_path))


@pytest.mark.parametrize(
    ("line", "words"),
    [("{}", "no measured point"), ("nothing", "no measured point"), (None, "without `least`")],
)
def test_a_broken_point_is_shown_where_it_stands(
    tmp_path: Path, line: str | None, words: str
) -> None:
    shutil.copytree(FOLDER, tmp_path / "folder")
    path = tmp_path / "folder" / "points" / "gemm.jsonl"
    lines = path.read_text().splitlines()
    point = json.loads(lines[3])
    point["timing"]["least"] = None
    lines[3] = json.dumps(point) if line is None else line
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match=words) as caught:
        read_folder(tmp_path / "folder")
    assert str(caught.value.problems[0].origin).endswith("gemm.jsonl:4:1")


@pytest.mark.slow
def test_a_difference_says_what_each_number_is_worth() -> None:
    old = load_part("calibrations", "h800-hopper-bf16").spec
    new = replaced(replaced(old, "bandwidth", 0.7), "matmuls.bf16.efficiency", 0.7)
    scenario = load("kimi-k2-256xh800", ["train.global_batch=128seq"])
    found = difference(old, new, scenario)
    by_path = {change.path: change for change in found.changes}
    assert set(by_path) == {"bandwidth", "matmuls.bf16.efficiency"}
    assert by_path["bandwidth"].ratio == pytest.approx(0.7 / 0.85)
    assert found.seconds is not None
    slower = found.seconds[1] - found.seconds[0]
    parts = [change.seconds or 0.0 for change in found.changes]
    assert min(parts) > 0
    assert sum(parts) == pytest.approx(slower, rel=0.35)
    assert difference(old, old, scenario).changes == ()
