"""The preset nano, whole: minutes on two cores, and better than counting 5-grams of its text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

from reference.config import load_run
from reference.metrics import NAME, read_lines
from reference.studies.ngram import baseline

pytestmark = pytest.mark.benchmark
MINUTES = 5


def test_nano_trains_below_kneser_ney_in_minutes(root: Path, tmp_path: Path) -> None:
    """In a process of its own, as a user starts it, with the corpus prepared anew."""
    sets = [f"train.output={tmp_path / 'run'}", f"data.cache={tmp_path / 'data'}"]
    words = [part for one in sets for part in ("--set", one)]
    start = perf_counter()
    subprocess.run(
        [sys.executable, "-m", "reference.train", "nano", *words], cwd=root, check=True, timeout=900
    )
    seconds = perf_counter() - start
    lines = read_lines(tmp_path / "run" / NAME)
    reached = [line for line in lines if line["kind"] == "evaluation"][-1]
    tokens = [line for line in lines if line["kind"] == "step"][-1]["tokens"]
    counted = baseline(load_run("nano", sets), tokens)
    assert counted.judged == reached["tokens"]
    print(
        f"nano: {reached['bits_per_byte']:.4f} bits per byte after {tokens:,} tokens in "
        f"{seconds:.0f} s; 5-gram Kneser-Ney over them {counted.bits_per_byte:.4f}"
    )
    assert reached["bits_per_byte"] < counted.bits_per_byte
    assert seconds < 60 * MINUTES
