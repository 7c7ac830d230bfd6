"""`python -m reference.measure` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import twin
from reference import machine
from reference.measure import run
from reference.measure.__main__ import main
from reference.measure.groups import GROUPS
from twin.loading import load_part


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON and stderr of a command."""
    code = main([*words, "--json"])
    out, error = capsys.readouterr()
    return code, json.loads(out), error


def test_a_quick_run_measures_every_group_and_its_parts_serve_a_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "here"
    words = ["--device", "cpu", "--quick", "--output", str(folder), "--name", "this-core"]
    code, found, error = said(words, capsys)
    assert (code, found["missing"]) == (0, "")
    assert "s left: launch" in error
    assert {path.stem for path in (folder / "points").iterdir()} == set(GROUPS)
    assert {(skip["group"], skip["what"]) for skip in found["skipped"]} == {
        ("gemm", "FP8 products"),
        ("copies", "pinned copies to and from a GPU"),
        ("streams", "kernels of two streams"),
        ("sustained", "products without pause"),
    }
    profile = load_part("calibrations", "this-core", [folder]).spec
    assert profile.matmuls is not None
    host = load_part("software", "this-core", [folder]).spec.host
    shipped = load_part("software", "reference-cpu").spec.host
    assert host is not None
    assert shipped is not None
    assert host.items.keys() == shipped.items.keys()
    assert all(0 < seconds < 0.1 for seconds in host.items.values())
    (step,) = folder.glob("step-*.yaml")
    plan = twin.plan(twin.load(step))
    report = twin.report(plan, twin.simulate(twin.lower(plan)))
    assert (report.kpis["step_seconds"] or 0) > 0
    assert found["bars"] == []


def test_groups_measured_before_stay_and_complete_a_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device", "cpu", "--quick", "--output", str(tmp_path), "--only"]
    code, found, _ = said([*words, "launch,bandwidth"], capsys)
    assert (code, found["missing"]) == (0, "gemm, attention")
    assert not (tmp_path / "catalog").exists()
    before = (tmp_path / "points" / "launch.jsonl").read_text()
    code, found, _ = said([*words, "gemm,attention"], capsys)
    assert (code, found["missing"]) == (0, "")
    assert (tmp_path / "points" / "launch.jsonl").read_text() == before
    assert load_part("calibrations", found["machine"]["name"], [tmp_path])


def test_a_report_in_words_says_what_was_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--device", "cpu", "--quick", "--output", str(tmp_path), "--only", "copies"]) == 0
    out = capsys.readouterr().out
    assert "skipped copies: pinned copies to and from a GPU: no GPU" in out
    assert "skipped the bars: 25 % MFU" in out
    assert "no profile yet: it also needs points of launch, bandwidth, gemm, attention" in out


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--device", "tpu"], "TW260", "write auto, cpu or cuda"),
        (["--only", "gem"], "TW261", "gemm"),
        (["--seconds", "0"], "TW265", "0.01 to 60"),
        (["--threads", "0"], "TW265", "1 or more"),
        (["--model", "kimi-k3"], "TW006", "kimi-k2"),
    ],
)
def test_a_slip_is_told_with_its_fix(
    words: list[str], code: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code, found, error = said([*words, "--quick", "--output", str(tmp_path)], capsys)
    assert exit_code == 2
    (problem,) = found["problems"]
    assert problem["code"] == code
    assert text in error
    assert "Traceback" not in error


def test_a_gpu_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, found, _ = said(["--device", "cuda", "--output", str(tmp_path)], capsys)
    assert (code, found["problems"][0]["code"]) == (2, "TW260")
    assert "leave `--device` out" in found["problems"][0]["hint"]


def test_another_machines_folder_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device", "cpu", "--quick", "--only", "copies", "--output", str(tmp_path)]
    assert main([*words, "--name", "one"]) == 0
    before = (tmp_path / "points" / "copies.jsonl").read_text()
    assert main([*words, "--name", "other"]) == 2
    assert "TW262" in capsys.readouterr().err
    assert (tmp_path / "points" / "copies.jsonl").read_text() == before


def test_a_folder_that_cannot_be_made_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    code, found, _ = said(["--quick", "--output", str(tmp_path / "file")], capsys)
    assert (code, found["problems"][0]["code"]) == (2, "TW262")


def test_a_broken_file_of_points_is_told_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device", "cpu", "--quick", "--output", str(tmp_path), "--only"]
    assert main([*words, "copies"]) == 0
    path = tmp_path / "points" / "copies.jsonl"
    path.write_text(path.read_text() + '{"group": "copies"}\n')
    assert main([*words, "launch"]) == 2
    error = capsys.readouterr().err
    assert "TW263 line 4" in error
    assert "copies.jsonl" in error


def test_groups_that_ended_before_an_interruption_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(_: object) -> NoReturn:
        raise KeyboardInterrupt

    def interrupted(_: object) -> list[run.TimedCase]:
        return [run.TimedCase("step", {}, "bf16", 0.0, 0.0, 1, stopped)]

    monkeypatch.setattr(run, "GROUPS", {**GROUPS, "steps": interrupted})
    words = ["--device", "cpu", "--quick", "--output", str(tmp_path), "--only", "copies,steps"]
    assert main(words) == 130
    assert "groups that had ended are kept" in capsys.readouterr().err
    assert (tmp_path / "points" / "copies.jsonl").exists()
    assert not (tmp_path / "points" / "steps.jsonl").exists()


def test_what_a_device_cannot_run_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: object) -> NoReturn:
        raise RuntimeError("out of memory\nat some depth")

    def cases(_: object) -> list[run.TimedCase]:
        return [run.TimedCase("huge", {"rows": 9}, "bf16", 0.0, 0.0, 1, fails)]

    monkeypatch.setattr(run, "GROUPS", {**GROUPS, "grouped": cases})
    words = ["--device", "cpu", "--quick", "--output", str(tmp_path), "--only"]
    assert main([*words, "copies,grouped"]) == 0
    assert (
        "skipped grouped: huge bf16 (rows 9): RuntimeError: out of memory\n"
        in capsys.readouterr().out
    )
    code, found, _ = said([*words, "grouped"], capsys)
    assert (code, found["problems"][0]["code"]) == (2, "TW264")


def test_names_are_those_of_files() -> None:
    assert machine.slug("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3"
    assert machine.slug("AMD EPYC 9V84 (x86)") == "amd-epyc-9v84-x86"
