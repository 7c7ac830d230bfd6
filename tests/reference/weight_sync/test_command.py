"""`python -m reference.weight_sync`, in this process; its ranks are forks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from reference.checkpoint.folder import Snapshot, save
from reference.config import load_run
from reference.model import Transformer
from reference.trainer.settings import weights_of
from reference.weight_sync.__main__ import main
from tests.reference.train.mini import MINI
from tests.reference.weight_sync.small import fill
from twin.evidence.measured.run_folder import read


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mini.yaml"
    names = {name: tmp_path / name for name in ("texts", "cache")}
    path.write_text(MINI.format(out=tmp_path / "run", **names))
    return path


@pytest.fixture
def run(tmp_path: Path, config: Path) -> Path:
    """A run's folder with a checkpoint."""
    spec = load_run(config)
    model = Transformer(spec.model, dtype=torch.float32)
    fill(model, 5)
    snapshot = Snapshot(3, {**weights_of(model)}, {}, spec.model_dump(mode="json"))
    save(tmp_path / "run" / "checkpoints", snapshot, 1)
    return tmp_path / "run"


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_reaches_two_engines_one_of_which_is_lost(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = document(
        capsys,
        *(str(config), "--set", "parallel.expert=2", "--to", "replicas=2", "--bucket", "4kB"),
        *("--lose", "1", "--timeline", str(tmp_path / "seen"), "--repeat", "2"),
    )
    assert told["unequal"] == []
    lost, *others = told["updates"]
    assert [one["stages"] for one in told["updates"]] == ["two", "three"] * 2
    assert lost["lost"] == [1]
    assert not any(one["lost"] or one["failed"] for one in others)
    assert [one["bytes"] for one in told["recoveries"]] == [told["payload_bytes"]]
    for one in others:
        stages = one["by_stage"]
        assert 0 < max(stages[name]["seconds"] for name in stages) <= one["asked_seconds"]
        assert one["overlap_seconds"] <= one["seconds"] <= one["asked_seconds"]
        assert one["sent_bytes"] == 2 * stages["host_copy"]["bytes"] >= 2 * told["payload_bytes"]
    seen = read(tmp_path / "seen")
    assert len(seen.ranks) == 4
    assert {"broadcast", "host_copy"} <= {*seen.ranks[0].words}
    assert "reload" in seen.ranks[3].words


def test_a_start_reads_the_checkpoint_once_by_two_ranks(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = str(run), "--to", "pipeline=2,names=split", "--ranks", "2", "--start"
    told = document(capsys, *words, "--stages", "two", "--bucket", "8kB")
    assert told["unequal"] == []
    (file,) = (run / "checkpoints" / "step-00000003" / "tensors").glob("*.distcp")
    assert sum(told["start"]["bytes"]) == file.stat().st_size
    assert min(told["start"]["bytes"]) > 0.4 * file.stat().st_size


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["nano", "--to", "expert=5"], 2, "TW621"),
        (["nano", "--to", "tensors=5"], 2, "TW620"),
        (["nano", "--to", "", "--start"], 2, "TW627"),
        (["nano", "--to", "", "--bucket", "3"], 2, "TW628"),
        (["nano", "--to", "", "--lose", "4"], 2, "TW620"),
        (["nano", "--to", "", "--stages", "two", "--free-memory", "9kB"], 2, "TW622"),
        (["reference", "--to", ""], 2, "TW627"),
    ],
)
def test_what_cannot_be_is_told_with_a_code(
    words: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    assert text in capsys.readouterr().err
