"""What gloo moves over shaped links, as rows in the repository say, and the laws that follow."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

import twin
from tests.reference.cluster.rows import FOLDER, Row, fitted, of_scenario, quiet, seconds, shaped
from twin import units
from twin.loading import load_part
from twin.spec.cluster import FabricSpec, NodeSpec

ROWS = shaped()
HEADERS = 1.06
"""Frames and answers, over the payload, at most."""


def some(pattern: str, nodes: int, least: int = 2**20, rate: float = 1e9) -> list[Row]:
    """Rows of a pattern, from a size up, to a rate."""
    found = [
        row
        for row in ROWS
        if (row.pattern, row.nodes) == (pattern, nodes) and row.bytes >= least and row.rate <= rate
    ]
    assert found
    return found


def slowness(pattern: str, nodes: int) -> float:
    """How much longer than the bytes of its fullest card at the line rate, in the middle of rows of
    4 MiB and more over 1 Gbps and less."""
    rows = some(pattern, nodes, 2**22, 1.25e8)
    return median(row.median / (row.sent / row.rate) for row in rows)


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize(
    ("pattern", "passes"),
    [
        ("all_reduce", 2),
        ("reduce_scatter", 2),
        ("all_gather", 1),
        ("all_to_all", 1),
        ("reduce_scatter_posted", 1),
        ("all_gather_posted", 1),
        ("all_to_all_posted", 1),
    ],
)
def test_bytes_through_a_card_are_passes_of_all_shares_but_ones_own(
    pattern: str, passes: int, nodes: int
) -> None:
    expected = passes * (nodes - 1) / nodes
    for row in some(pattern, nodes):
        assert expected <= row.share <= HEADERS * expected


def test_a_broadcast_is_sent_by_its_root_to_one_rank_of_every_level() -> None:
    """A binomial tree: the root of four sends the whole twice."""
    assert all(2 <= row.share <= 2 * HEADERS for row in some("broadcast", 4))


def test_a_pair_moves_bytes_one_way_at_a_time_unless_receives_are_posted_first() -> None:
    assert slowness("send_first", 2) == pytest.approx(2.0, rel=0.05)
    assert slowness("receive_first", 2) == pytest.approx(1.0, rel=0.05)
    assert slowness("two_groups", 2) == pytest.approx(1.0, rel=0.1)


def test_gloos_all_to_all_needs_twice_the_time_between_two_ranks_and_less_between_four() -> None:
    assert slowness("all_to_all", 2) == pytest.approx(2.0, rel=0.05)
    assert 1.5 < slowness("all_to_all", 4) < 2.0
    assert slowness("all_to_all_posted", 2) == pytest.approx(1.0, rel=0.1)


def test_gloos_all_gather_of_two_ranks_needs_half_again() -> None:
    assert slowness("all_gather", 2) == pytest.approx(1.55, rel=0.1)
    assert slowness("all_gather_posted", 2) == pytest.approx(1.0, rel=0.1)


def test_the_catalogs_numbers_are_the_fit_on_these_rows() -> None:
    node = load_part("nodes", "netns-1rank", [FOLDER]).spec
    fabric = load_part("fabrics", "netns-bridge").spec
    assert isinstance(node, NodeSpec)
    assert isinstance(fabric, FabricSpec)
    found = fitted(quiet())
    assert node.nic.efficiency * fabric.efficiency == pytest.approx(found.efficiency, rel=0.005)
    assert node.nic.latency == pytest.approx(found.hop, rel=0.05)
    assert node.nvlink.latency == pytest.approx(found.start_hop, rel=0.05)


def test_the_twins_law_holds_where_receives_are_posted_first() -> None:
    rows = quiet()
    measured = np.array([row.least for row in rows])
    errors = np.abs(seconds(rows, fitted(rows)) / measured - 1)
    assert len(rows) == 90
    assert np.median(errors) < 0.03
    assert np.quantile(errors, 0.9) < 0.1


@pytest.mark.parametrize("rate", ["100Mbps", "1Gbps"])
def test_a_scenario_describes_such_a_cluster(rate: str) -> None:
    scenario = twin.load(
        FOLDER / "netns-kimi-k2-nano-2x1.yaml", [f"cluster.node.nic.bandwidth={rate}"]
    )
    plan = twin.plan(scenario)
    moved = of_scenario(scenario.cluster)
    assert (moved.ranks, moved.rate) == (2, units.parse(rate, "bytes_per_s"))
    step = twin.report(plan, twin.simulate(twin.lower(plan))).kpis["step_seconds"]
    assert step is not None
    assert step > 0
