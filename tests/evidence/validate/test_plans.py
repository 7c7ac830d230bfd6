"""Rows as plans: what is opened is what was predicted."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.evidence.validate.made import answer as made
from twin.evidence.validate.shipped_answers import plan_of, write_scenarios
from twin.evidence.validate.steps import settled
from twin.evidence.validate.suite import read_suite
from twin.evidence.validate.training import express
from twin.loading import load, scenario_hash

FIRST = "vtrain-check-multi-node-1"


@cache
def rows():
    return {row.id: row for row in read_suite()}


@cache
def chosen():
    """vTrain's first row, and rows of three stacks that change parts of the catalog."""
    found = {}
    for row in rows().values():
        if len(found) == 3:
            break
        if row.category == "train_step" and row.reproducible and row.use != "check":
            try:
                own = express(row)
            except ValueError:
                continue
            if own.over:
                found.setdefault(own.stack.name, row)
    return [rows()[FIRST], *found.values()]


@pytest.mark.parametrize("place", range(4))
def test_a_plan_with_its_edits_is_the_scenario_that_was_predicted(place, tmp_path: Path) -> None:
    row = chosen()[place]
    found = plan_of(row)
    (tmp_path / found.name).write_text(found.text)
    opened = load(tmp_path / found.name, [f"{path}={value}" for path, value in found.sets])
    assert scenario_hash(opened) == scenario_hash(settled(express(row))[1])


def test_what_is_written_computes_again_what_was_predicted_to(tmp_path: Path) -> None:
    row = rows()["modelzoo-qwen3-235b-gb200-s4096-mxfp8-256"]
    found = settled(express(row))
    assert write_scenarios(tmp_path, (row,), (made(row.id),)) == 1
    assert scenario_hash(load(tmp_path / f"{row.id}.yaml")) == scenario_hash(found[1])
