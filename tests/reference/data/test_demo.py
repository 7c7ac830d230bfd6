"""One command from raw text to a judged model, killed in every part of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reference.data.__main__ import main
from reference.data.shards import read_table
from reference.text.packing import read_manifest
from tests.reference.data.raw import bytes_of

pytestmark = pytest.mark.slow
STEPS = 8


def command(folder: Path) -> list[str]:
    return ["demo", "--output", str(folder), "--steps", str(STEPS)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed demonstration."""
    folder = tmp_path_factory.mktemp("whole") / "demo"
    assert main(command(folder)) == 0
    return folder


def _killed_when(folder: Path, there: Callable[[], bool]) -> None:
    """Runs the command until a state of its folder is seen, then kills it."""
    words = [sys.executable, "-m", "reference.data", *command(folder)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not there():
        time.sleep(0.002)
    assert process.poll() is None, "the point was never seen"
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_killed_in_every_part_it_ends_with_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    """Ten kills of one demonstration, each later on: while raw text is written, in six stages of
    the build, twice in training, in the evaluation."""
    folder = tmp_path / "demo"
    build, run, cases = folder / "build", folder / "run", folder / "evaluation" / "cases"

    def has(path: Path, size: int = 1) -> Callable[[], bool]:
        return lambda: path.exists() and (path.is_dir() or path.stat().st_size >= size)

    points = [
        has(folder / ".raw.partial"),
        has(build / ".ingest.partial"),
        has(build / ".near.partial"),
        has(build / ".rephrase.partial" / "journal.jsonl", 100_000),
        has(build / "rephrase"),
        has(build / ".encode.partial"),
        has(build / ".shards.partial" / "training-00001.bin"),
        has(build / "manifest.json"),
        lambda: len(list(run.glob("checkpoints/*"))) >= 1,
        has(cases / "held-out.jsonl"),
    ]
    for point in points:
        _killed_when(folder, point)
    assert main(command(folder)) == 0
    assert (folder / "report.json").read_bytes() == (whole / "report.json").read_bytes()
    for part in ("raw", "build/shards", "build/rephrase", "build/encode", "build/vocabulary"):
        assert bytes_of(folder / part) == bytes_of(whole / part), part
    assert _visits(folder / "build") == _visits(whole / "build")


def _visits(build: Path) -> list[str]:
    """The documents of the training shards in order, each as often as it is read."""
    rows = list(read_table(build / "encode"))
    found: list[str] = []
    for shard in read_manifest(build)["training"]:
        for _, document, offset, _ in np.load(build / "shards" / shard["index"]).tolist():
            found += [rows[document]["id"]] if offset == 0 else []
    trained = {row["id"] for row in rows if row["side"] == "training"}
    assert set(found) <= trained
    return found


def test_a_second_time_everything_is_found_done(whole: Path) -> None:
    report = (whole / "report.json").read_bytes()
    began = time.monotonic()
    assert main(command(whole)) == 0
    assert (whole / "report.json").read_bytes() == report
    found = json.loads(report)
    assert found["steps"] == STEPS
    assert 0 < found["evaluation"]["held-out"]["bits_per_byte"]["value"] < 8
    print(f"again in {time.monotonic() - began:.1f} s; {json.dumps(found['evaluation'])}")


def test_a_flipped_byte_stops_the_demonstration_and_is_named(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = whole / "build" / "shards" / "training-00000.bin"
    content = path.read_bytes()
    try:
        path.write_bytes(content[:1000] + bytes([content[1000] ^ 4]) + content[1001:])
        assert main(["check", str(whole / "build")]) == 2
        assert "training shard 0" in capsys.readouterr().err
        assert main(command(whole)) == 2
        assert str(path) in capsys.readouterr().err
    finally:
        path.write_bytes(content)
