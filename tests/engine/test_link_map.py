"""Who shares which link, and what folding makes of it."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.engine.programs import UNIT, apart
from tests.engine.scenarios import dense, moe
from twin.collectives.base import Traffic
from twin.engine import lower, plan, simulate
from twin.engine.link_map import Rates, Seats, wire


def test_ranks_of_one_role_on_a_socket_count_as_often_as_they_are() -> None:
    """Eight ranks, two roles of four, on two sockets of four, one role each."""
    seats = Seats([0] * 4 + [1] * 4, [0, 4], switch=2, socket=4, node=8, pod=8)
    wiring = wire(seats, Rates(8.0, 8.0, 8.0, dram=16.0), host=True)
    out, dram = wiring.ports[0].to_host
    assert (wiring.classes[dram[0]], dram[1]) == ("dram", 4.0)
    assert wiring.ports[1].to_host[1] != dram
    assert wiring.alone["host"] == 16.0 / 4
    assert wiring.classes[out[0]] == "pcie"


def test_roles_that_share_a_socket_share_its_memory() -> None:
    """Eight ranks of eight roles on two sockets: four roles each."""
    wiring = wire(Seats(range(8), range(8), 2, 4, 8, 8), Rates(8.0, 8.0, 8.0, 16.0), host=True)
    memories = [ports.to_host[1] for ports in wiring.ports]
    assert memories[0] == memories[3] != memories[4] == memories[7]
    assert wiring.alone["host"] == 8.0  # one copy by itself has all of it


def test_sockets_that_do_not_divide_a_node_keep_to_it() -> None:
    """Two nodes of eight on three sockets: three, three and two ranks; one role per node."""
    seats = Seats([0] * 8 + [1] * 8, [0, 8], switch=3, socket=3, node=8, pod=16)
    wiring = wire(seats, Rates(8.0, 8.0, 8.0, dram=12.0), host=True)
    assert [ports.to_host[-1][1] for ports in wiring.ports] == [3.0, 3.0]


def test_nic_traffic_and_host_copies_meet_on_the_gpus_pcie() -> None:
    wiring = apart(1, Rates(1.0, 40.0, 50.0, 200.0), host=True)
    ((_, nic),) = wiring.flows(Traffic(nic_bytes=1.0), 0)
    ((_, down),) = wiring.flows(Traffic(to_host_bytes=1.0), 0)
    ((_, up),) = wiring.flows(Traffic(from_host_bytes=1.0), 0)
    shared_out, shared_in = set(nic) & set(down), set(nic) & set(up)
    assert {wiring.classes[link] for link, _ in shared_out | shared_in} == {"pcie"}
    assert not shared_out & shared_in  # one direction each
    assert {wiring.classes[link] for link, _ in set(down) & set(up)} == {"dram"}


def test_without_host_copies_pcie_is_left_out_unless_it_is_the_narrow_place() -> None:
    assert "pcie" not in apart(2).classes
    narrow = apart(2, Rates(1.0, 2.0, 1.0, 9.0))
    assert "pcie" in narrow.classes
    assert narrow.alone["nic"] == 1.0


def test_only_what_leaves_the_leaf_crosses_its_uplinks() -> None:
    wiring = apart(1, Rates(1.0, 1.0, 1.0, 2.0, leaf=0.25))
    ((_, near),) = wiring.flows(Traffic(nic_bytes=4.0), 0)
    ((_, far),) = wiring.flows(Traffic(nic_bytes=4.0, far_bytes=1.0), 0)
    assert near == tuple(hop for hop in far if wiring.classes[hop[0]] != "leaf")
    assert [weight for link, weight in far if wiring.classes[link] == "leaf"] == [0.25, 0.25]
    assert wiring.alone["far"] == 0.25


def test_use_is_a_mean_over_links_of_a_class() -> None:
    wiring = apart(2, UNIT)
    total = [0.0] * len(wiring.capacity)
    total[wiring.classes.index("nic")] = 8.0
    carried, busy = wiring.used(total, 10)
    assert (carried["nic"], busy["nic"]) == (2.0, 0.2)  # one of four ports


@pytest.mark.parametrize(
    "scenario",
    [
        dense(2, 2, 1, 4),
        moe(8, 4, 2, 16),
        moe(4, 4, 2, 4, "parallel.order=[context,expert,data,pipeline,tensor]"),
    ],
)
@pytest.mark.parametrize("ranks", ["group", "all"])
def test_unfolded_ranks_take_as_long_as_folded_ones(
    scenario: object, ranks: Literal["group", "all"]
) -> None:
    resolved = plan(scenario)  # type: ignore[arg-type]
    folded, unfolded = (simulate(lower(resolved, kind)) for kind in ("folded", ranks))
    assert abs(unfolded.step_ns - folded.step_ns) <= 1000
    assert unfolded.link_bytes == pytest.approx(folded.link_bytes)
