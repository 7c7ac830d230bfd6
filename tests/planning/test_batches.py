"""Batches that are offered in place of one that does not divide."""

from __future__ import annotations

import re

import pytest

from twin.engine import plan
from twin.errors import ScenarioError
from twin.loading import load


@pytest.mark.parametrize("wanted", [4097, 2050])
def test_a_batch_that_is_offered_is_one_that_the_schedule_can_run(wanted: int) -> None:
    """Several chunks per stage want whole rounds of micro-batches: 16 of 16 data ranks each."""
    with pytest.raises(ScenarioError, match="TW115") as caught:
        plan(load("kimi-k2-256xh800", [f"train.global_batch={wanted}seq"]))
    hints = " ".join(one.hint for one in caught.value.problems if one.code == "TW115")
    offered = [int(batch) for batch in re.findall(r"(\d+)seq", hints)]
    assert offered[0] < wanted < offered[-1]
    for batch in offered:
        plan(load("kimi-k2-256xh800", [f"train.global_batch={batch}seq"]))


@pytest.mark.parametrize(("kind", "most"), [("gpipe", 2048), ("1f1b", 1_000_000)])
def test_a_step_of_endless_micro_batches_is_refused_before_its_order_is_written(
    kind: str, most: int
) -> None:
    sets = [f"parallel.schedule={kind}", "parallel.virtual=1", "train.tokens=900T"]
    asked = ("gpt-175b-64xa100-full", [*sets, f"train.global_batch={10 * most}seq"])
    with pytest.raises(ScenarioError, match="TW122") as caught:
        plan(load(*asked))
    (told,) = (one for one in caught.value.problems if one.code == "TW122")
    assert f"at most {most}seq" in told.hint
