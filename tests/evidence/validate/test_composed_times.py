"""vTrain's table of one node is no set of timed iterations: each time is a sum."""

from __future__ import annotations

import csv
from collections import defaultdict
from statistics import median

import numpy as np
import pytest

from twin.evidence.validate.stacks import stack_of
from twin.evidence.validate.suite import read_suite
from twin.loading.files import shipped_folder

SHAPE = ("hidden size", "micro batch", "tensor parallelism", "data parallelism",
         "pipeline parallelism")  # fmt: skip
"""What a sum has terms of its own for."""
TERMS = 4


def misses(nodes: str) -> list[float]:
    """How far each time is from the sum of slots x layers, slots, layers and a constant that fits
    best the times of its shape, where these are more than the sum has terms."""
    groups: dict[tuple[str, ...], list[tuple[float, ...]]] = defaultdict(list)
    for kind in ("fit", "check"):
        file = shipped_folder() / "published" / f"vtrain-{kind}-{nodes}-node.csv"
        for cells in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
            batch = int(cells["global batch"]) / int(cells["data parallelism"])
            slots = batch / int(cells["micro batch"]) + int(cells["pipeline parallelism"]) - 1
            layers, time = float(cells["# layers"]), float(cells["iteration time (ms)"])
            row = (slots * layers / time, slots / time, layers / time, 1 / time)
            groups[tuple(cells[name] for name in SHAPE)].append(row)
    found: list[float] = []
    for rows in groups.values():
        if len(rows) > TERMS:
            terms = np.array(rows)
            best = np.linalg.lstsq(terms, np.ones(len(rows)), rcond=None)[0]
            found += np.abs(terms @ best - 1).tolist()
    return found


def test_times_of_one_node_are_sums_to_a_millionth() -> None:
    found = misses("single")
    assert len(found) > 500
    assert median(found) < 2e-6  # measured iterations repeat to one part in a hundred


@pytest.mark.parametrize(("nodes", "name"), [("one node", "layers"), ("several", "DeepSpeed")])
def test_sums_run_a_stack_of_their_own(nodes: str, name: str) -> None:
    rows = [
        row for row in read_suite() if f"VIA-Research/vTrain (MICRO 2024), {nodes}" in row.source
    ]
    assert rows
    assert all(name in stack_of(row, "A100-80GB").name for row in rows)
