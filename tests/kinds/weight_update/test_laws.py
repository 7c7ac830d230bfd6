"""What holds of every update: bytes arrive, faster links do not hurt, times follow the formula."""

from __future__ import annotations

from itertools import groupby, product

import pytest

import twin
from tests.kinds.weight_update.updates import (
    H800,
    LARGE,
    QUICK,
    SMALL,
    changed,
    planned,
    played,
    seconds,
)
from twin.network.links import capacity

WIDE = "cluster.node.host.pcie.bandwidth=126GB/s"
"""Twice the PCIe link: room for a NIC and copies from the host."""
LAYOUTS = [
    (),
    ("weight_update.replica.gpus=8",),
    ("weight_update.replica={gpus: 16, tensor: 4}",),
    ("weight_update.replica={gpus: 4, tensor: 1}",),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("stages", ["two", "three"])
def test_sent_point_to_point_every_rank_receives_what_it_keeps(layout, stages) -> None:
    plan = planned(SMALL, *QUICK, *layout, *changed((), method="p2p", stages=stages))
    program = twin.lower(plan)
    sent = sum(one.bytes for one in program.operations if one.stage == "send")
    assert sent == pytest.approx(plan.takers * plan.held, rel=1e-12)
    assert plan.received == plan.held


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_ranks_of_an_instance_keep_the_checkpoint_once_and_copies_of_what_all_need(
    layout,
) -> None:
    plan = planned(SMALL, *QUICK, *layout)
    replica = plan.scenario.weight_update.replica
    replicated = sum(one.replicated for one in plan.buckets)
    shared = sum(one.shared for one in plan.buckets)
    copies = replicated * (replica.gpus - 1) + shared * (replica.gpus / replica.tensor_ranks - 1)
    assert replica.gpus * plan.held == pytest.approx(plan.payload + copies, rel=1e-12)


def test_an_update_in_place_takes_no_link_and_the_trainers_rate() -> None:
    sets = (*QUICK, *changed((), source="device"))
    program, slower = (
        twin.lower(planned(SMALL, *sets, f"weight_update.updater.in_place={rate}GB/s"))
        for rate in (20, 10)
    )
    casts = [one for one in program.operations if one.stage == "broadcast"]
    assert not any(one.flows or one.carried for one in casts)
    payload = planned(SMALL, *sets).payload
    longer = twin.simulate(slower).update_ns - twin.simulate(program).update_ns
    assert longer == pytest.approx(payload / 20, rel=5e-3)


def test_tensors_that_are_loaded_one_by_one_cost_calls_of_their_layers() -> None:
    calls = "weight_update.updater.per_layer=1ms"
    plan, spans = planned(SMALL, *QUICK), [0, 0]
    for at, sets in enumerate(((), (calls,))):
        program = twin.lower(planned(SMALL, *QUICK, *sets))
        spans[at] = sum(o.duration_ns for o in program.operations if o.stage == "reload")
    longer = 1e6 * plan.tensors * plan.scenario.model.layers
    assert spans[1] - spans[0] == pytest.approx(longer, rel=1e-6)


def test_one_reader_fetches_and_broadcasts_in_turn() -> None:
    """Then a recovery lasts as long as all fetches through one NIC and all broadcasts."""
    sets = (*QUICK, *changed((), event="recover"))
    program = twin.lower(planned(SMALL, *sets, "weight_update.updater.readers=1"))
    trace = twin.simulate(program)
    spent = {"fetch": 0, "broadcast": 0, "handover": 0, "regroup": 0}
    for one, start, end in zip(program.operations, trace.start, trace.end, strict=True):
        if one.stage in spent:
            spent[one.stage] += end - start
    assert {one.rank for one in program.operations if one.stage == "fetch"} == {0}
    assert trace.update_ns == pytest.approx(sum(spent.values()), rel=0.02)
    together = played(SMALL, *sets).update_ns
    assert trace.update_ns - spent["regroup"] > 1.1 * (together - spent["regroup"])


@pytest.mark.parametrize("event", ["update", "recover"])
def test_broadcasts_bring_all_of_the_checkpoint(event) -> None:
    program = twin.lower(planned(SMALL, *QUICK, *changed((), event=event)))
    sizes = {
        stage: sum(one.bytes for one in program.operations if one.stage == stage and one.carried)
        for stage in ("broadcast", "host_copy", "fetch")
    }
    copied = sizes["host_copy"] + sizes["fetch"]
    assert sizes["broadcast"] == copied == planned(SMALL, *QUICK).payload


@pytest.mark.parametrize(
    ("link", "slow", "fast"),
    [
        ("cluster.node.nic.bandwidth", "200Gbps", "400Gbps"),
        ("cluster.node.nic.bandwidth", "400Gbps", "800Gbps"),
        ("cluster.node.nvlink.bandwidth", "100GB/s", "450GB/s"),
        ("cluster.node.host.pcie.bandwidth", "32GB/s", "63GB/s"),
        ("cluster.node.host.memory_bandwidth_per_socket", "100GB/s", "300GB/s"),
        ("cluster.node.gpu.memory_bandwidth", "2TB/s", "4TB/s"),
    ],
)
@pytest.mark.parametrize(
    "pipeline",
    [
        *product(["update", "recover"], ["two", "three"], ["broadcast"]),
        ("update", "two", "p2p"),
        ("update", "three", "p2p"),
    ],
)
def test_more_bandwidth_is_never_slower(link, slow, fast, pipeline) -> None:
    """Where flows meet, fairness may shift who waits: within a tenth."""
    event, stages, method = pipeline
    sets = changed(QUICK, event=event, stages=stages, method=method)
    assert seconds(SMALL, *sets, f"{link}={fast}") <= 1.1 * seconds(SMALL, *sets, f"{link}={slow}")


def formula(plan) -> tuple[float, float]:
    """Rounds of the slowest copy, then per bucket the longer of its broadcast and the reload of the
    one before, and the hand-over; the last reload. Also: what copies take of it."""
    cluster, updater = plan.scenario.cluster, plan.scenario.weight_update.updater
    memory = cluster.node.gpu.memory_bandwidth * plan.scenario.calibration.bandwidth
    # Eight GPUs copy at once, four of them from each socket.
    copy = min(capacity(cluster, "pcie"), capacity(cluster, "dram") / 4)
    ring = updater.nics * capacity(cluster, "nic") * updater.efficiency
    total = copies = before = 0.0
    for _, group in groupby(plan.buckets, key=lambda one: one.round):
        own = tuple(group)
        copies += max(one.bytes for one in own) / copy + cluster.node.host.pcie.latency
        for one in own:
            broadcast = one.bytes / ring + 2 * one.bytes / memory
            total += max(broadcast, before) + updater.hop * (plan.takers - 1)
            kept = one.replicated + (one.bytes - one.replicated) / 16
            before = updater.per_tensor * one.tensors + 2 * kept / memory
    return total + copies + before, copies


@pytest.mark.parametrize("name", [SMALL, LARGE])
def test_an_update_takes_what_the_formula_says_where_reloads_are_short(name) -> None:
    expected, _ = formula(planned(name))
    assert seconds(name) == pytest.approx(expected, rel=2e-3)


def test_long_reloads_go_on_under_the_copies_that_follow() -> None:
    sets = ("weight_update.updater.per_tensor=300us",)
    expected, copies = formula(planned(SMALL, *sets))
    assert expected - copies <= seconds(SMALL, *sets) <= expected * (1 + 1e-9)


@pytest.mark.parametrize("node", ["h20-8gpu", "h800-8gpu"])
def test_three_stages_collapse_where_copies_and_broadcasts_share_pcie(node) -> None:
    """Kimi K2's report, appendix G. What overlaps is lost again: rings between nodes run at the
    rate of their slowest GPU, and that shares its link with a copy."""
    sets = (f"cluster.node={node}",)
    two, three = (seconds(SMALL, *sets, f"weight_update.stages={n}") for n in ("two", "three"))
    copies = played(SMALL, *sets).breakdown_ns["host_copy"] / 1e9
    assert copies > 1.0
    assert three >= two
    assert three <= 1.1 * two


@pytest.mark.parametrize("node", ["h20-8gpu", "h800-8gpu"])
def test_three_stages_win_where_the_link_has_room_for_both(node) -> None:
    sets = (f"cluster.node={node}", WIDE)
    two, three = (seconds(SMALL, *sets, f"weight_update.stages={n}") for n in ("two", "three"))
    copies = played(SMALL, *sets).breakdown_ns["host_copy"] / 1e9
    assert two - three > 0.85 * copies  # all but the first round's


@pytest.mark.parametrize("name", [LARGE, H800])
def test_on_many_gpus_one_round_holds_a_share_and_stages_are_all_the_same(name) -> None:
    assert planned(name).rounds == 1
    assert seconds(name) == seconds(name, "weight_update.stages=three")
    assert played(name).breakdown_ns["host_copy"] / 1e9 < 0.2


def test_three_stages_gain_nothing_with_all_nics_busy() -> None:
    """PCIe then has no room for a copy beside the broadcast, however fast NVLink is."""
    sets = tuple(
        f"weight_update.updater.{edit}" for edit in ("nics=8", "efficiency=1.0", "per_tensor=0us")
    )
    two, three = (seconds(SMALL, *sets, f"weight_update.stages={n}") for n in ("two", "three"))
    assert three >= 0.97 * two
    faster = (*sets, "cluster.node.nvlink.efficiency=0.9", "weight_update.stages=three")
    assert seconds(SMALL, *faster) == pytest.approx(three, rel=0.01)


def test_without_room_for_a_copy_buffer_owners_copy_one_after_another() -> None:
    tight = "weight_update.free_memory=6GiB"
    plan = planned(SMALL, tight)
    assert plan.buffers.count == 2
    assert "no-copy-buffer" in [warning.code for warning in plan.warnings]
    serial = plan.payload / capacity(plan.scenario.cluster, "pcie")
    assert played(SMALL, tight).breakdown_ns["host_copy"] / 1e9 == pytest.approx(serial, rel=0.01)


def test_a_start_reads_the_checkpoint_once_and_then_updates() -> None:
    storage = "weight_update.storage={per_node: 10GB/s, total: 15GB/s}"
    start = played(SMALL, "weight_update.event=start", storage)
    assert start.breakdown_ns["read"] / 1e9 == pytest.approx(1029.17 / 15, rel=0.01)
    rest = start.update_ns - start.breakdown_ns["read"]
    assert rest == pytest.approx(played(SMALL).update_ns, rel=1e-6)


def test_a_recovery_takes_one_instance_only_and_no_more_rounds_than_its_ranks_need() -> None:
    plan = planned(LARGE, "weight_update.event=recover")
    assert (plan.takers, plan.nodes, plan.instances) == (16, 2, 1)
    assert {one.owner for one in plan.buckets} == set(range(16))
    assert plan.rounds == len(planned(LARGE).buckets) / 16


def test_sending_what_is_needed_takes_less_than_sending_all() -> None:
    for name in (SMALL, LARGE, H800):
        assert seconds(name, "weight_update.method=p2p") < seconds(name) / 4


def test_weights_on_devices_are_not_copied_from_a_host() -> None:
    trace = played(SMALL, *QUICK, "weight_update.source=device")
    assert "host_copy" not in trace.breakdown_ns or trace.breakdown_ns["host_copy"] == 0
    assert trace.update_ns < played(SMALL, *QUICK).update_ns
