"""Kimi K2's whole run on n x 32 nodes: every phase is costed, as written or as the nearest plan."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from twin.answers import ask
from twin.answers.nearest import nearest_fit
from twin.kinds.phases.plan import near
from twin.kinds.phases.report import PhasesReport
from twin.loading import load

ROOT = Path(__file__).parents[3]
NAME = "kimi-k2-whole-run-256xh800"
TRAINED = ("warm-up", "constant", "decay", "annealing at 4k", "long context at 32k")
DIVIDES = (1, 2, 4, 8)
"""Times 32 nodes on which the batch of every phase is whole rounds of micro-batches per rank."""


@cache
def answered(times: int) -> PhasesReport:
    return ask(load(NAME, [f"cluster.nodes={32 * times}"])).report


def batches(found: PhasesReport) -> dict[str, int]:
    """Sequences of what is costed, by phase."""
    return {
        phase.name: round(phase.check.tokens / phase.steps / phase.check.scenario.train.sequence)
        for phase in found.phases
        if phase.steps
    }


def test_the_warm_up_is_part_of_the_first_ten_trillion_tokens() -> None:
    """Report, section 2.5: 10T constant after 500 steps, 5.5T decay, 400B at 4k, 60B at 32k."""
    scenario = load(NAME)
    warm_up, constant, decay, annealing, long, last = scenario.phase_tokens
    assert warm_up == 500 * 2**26
    assert warm_up + constant == 10**13
    assert (decay, annealing, long, last) == (55 * 10**11, 4 * 10**11, 6 * 10**10, 0)
    assert scenario.train.tokens == 1596 * 10**10


def test_yarn_comes_with_the_last_phase_only() -> None:
    scenario = load(NAME)
    with_yarn = [scenario.phase(at).model.rope.yarn is not None for at in range(6)]
    assert with_yarn == [False] * 5 + [True]


def test_on_32_nodes_every_phase_fits_as_written() -> None:
    found = answered(1)
    assert found.fits
    assert batches(found) == dict.fromkeys(TRAINED[:4], 16384) | {TRAINED[4]: 2048}
    assert found.data_bytes == 4 * 1596 * 10**10
    checkpoints = {phase.saves.bytes for phase in found.phases if phase.saves}
    assert min(checkpoints) == pytest.approx(max(checkpoints), rel=1e-9)
    assert min(checkpoints) == pytest.approx(10.26e12, rel=0.01)  # 10 bytes of 1.026T parameters


@pytest.mark.slow
def test_on_96_nodes_the_nearest_whole_rounds_are_costed() -> None:
    """48 data ranks, 16 stages: 16,384 sequences are 341 1/3 micro-batches, 21 x 16 are 336."""
    found = answered(3)
    assert not found.fits
    assert {phase.costed for phase in found.phases} == {"nearest"}
    assert batches(found) == dict.fromkeys(TRAINED[:4], 48 * 336) | {TRAINED[4]: 6 * 336}
    assert found.kpis["days"] is not None


def test_no_phase_is_offered_another_cluster() -> None:
    """With half the stages twice the nodes would do, and the run has one cluster."""
    quarter = ["model.layers=14", "cluster.nodes=8", "parallel.pipeline=2"]
    scenario = load("kimi-k2-256xh800-four-chunks", quarter)
    found = nearest_fit(scenario)
    assert any("cluster.nodes" in one.overrides for one in found)
    offered = near(scenario, lambda _: found)
    assert offered
    assert not any("cluster.nodes" in one.overrides for one in offered)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2, 3, 4, 5, 6, 7, 8, 64])
def test_every_multiple_of_32_nodes_has_a_total_which_the_page_tells(times: int) -> None:
    found = answered(times)
    days, cost, mfu = (found.kpis[key] for key in ("days", "cost_usd", "mfu"))
    assert days is not None
    assert cost is not None
    assert mfu is not None
    assert all(phase.costed == "as written" for phase in found.phases) or times not in DIVIDES
    told = rows()[32 * times]
    assert float(told[0]) == pytest.approx(days, rel=0.01)
    assert float(told[1]) == pytest.approx(cost / 1e6, rel=0.01)
    assert float(told[2]) == pytest.approx(100 * mfu, rel=0.01)


def rows() -> dict[int, list[str]]:
    """Days, millions of dollars and MFU on the page, by nodes."""
    page = (ROOT / "docs" / "how-to" / "whole-run.md").read_text()
    found = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    return {int(nodes.replace(",", "")): values for nodes, *values in found}


def test_the_page_tells_nine_sizes() -> None:
    assert list(rows()) == [32 * times for times in (1, 2, 3, 4, 5, 6, 7, 8, 64)]
