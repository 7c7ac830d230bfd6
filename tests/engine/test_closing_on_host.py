"""How a step closes when the host keeps optimizer states: bytes, order and time of the buckets."""

from __future__ import annotations

import pytest

from tests.engine.scenarios import dense, moe
from twin.engine import lower, plan, simulate
from twin.engine.closing import finishes
from twin.engine.cost_model import CostModel
from twin.engine.program import COMPUTE, FROM_HOST, TO_HOST, Template
from twin.network.links import capacity, sharers
from twin.planning.offload import BUCKET, buckets, host_phases, share_of
from twin.planning.types import Plan

pytestmark = pytest.mark.usefixtures("each_player")

ADAMW = ("train.optimizer=adamw", "parallel.zero=0")
HOST = "memory.optimizer_update=host"


def planned(*sets: str) -> Plan:
    """A 22B GPT of 12 layers on two stages of 8 GPUs; each rank has 0.65e9 weights."""
    return plan(dense(2, 2, 1, 2, "memory.offload=[optimizer]", *ADAMW, *sets))


def closing(made: Plan) -> Template:
    steps, _ = finishes(made, CostModel.of(made))[0]
    return steps


def states(made: Plan) -> float:
    """Bytes of optimizer states of a rank of the first stage; the model has no experts."""
    return made.memory.stages[0].host["optimizer_dense"]


def bucket_steps(steps: Template, stream: int) -> list[int]:
    """Positions of the steps of the update on a stream."""
    if stream != COMPUTE:
        return [at for at, step in enumerate(steps) if step.stream == stream]
    begun = min(at for at, step in enumerate(steps) if step.stream in (TO_HOST, FROM_HOST))
    return [at for at, s in enumerate(steps) if at >= begun and s.name == "optimizer"]


def ends(steps: Template, rate: float) -> list[float]:
    """When each step ends (ns), with links to itself: in order on its stream, after what it waits
    for."""
    found: list[float] = []
    free: dict[int, float] = {}
    for step in steps:
        flow = step.traffic
        size = max(flow.to_host_bytes, flow.from_host_bytes) if flow else 0.0
        start = max([free.get(step.stream, 0.0), *(found[i] for i in step.after)])
        found.append(start + step.duration_ns + size / rate)
        free[step.stream] = found[-1]
    return found


def test_all_states_come_up_and_go_back_in_buckets() -> None:
    made = planned()
    steps = closing(made)
    for stream, name in ((FROM_HOST, "from_host_bytes"), (TO_HOST, "to_host_bytes")):
        sizes = [getattr(steps[at].traffic, name) for at in bucket_steps(steps, stream)]
        assert sum(sizes) == pytest.approx(states(made))
        assert max(sizes) <= BUCKET
        assert len(sizes) > 3


def test_the_host_sends_two_bytes_for_each_four_that_come() -> None:
    """Gradients down in fp32, weights up in bf16; 12 bytes of state stay."""
    made = planned(HOST)
    steps = closing(made)
    down = sum(steps[at].traffic.to_host_bytes for at in bucket_steps(steps, TO_HOST))  # type: ignore[union-attr]
    up = sum(steps[at].traffic.from_host_bytes for at in bucket_steps(steps, FROM_HOST))  # type: ignore[union-attr]
    assert (down, up) == (pytest.approx(states(made) / 3), pytest.approx(states(made) / 6))


def test_the_hosts_cores_are_as_fast_as_their_share_of_the_memory() -> None:
    """36 bytes per weight: 30 of the update and 6 that are copied; four GPUs share a socket."""
    made = planned(HOST)
    cluster = made.scenario.cluster
    steps = closing(made)
    spent = sum(steps[at].duration_ns for at in bucket_steps(steps, COMPUTE)) / 1e9
    weights = states(made) / 12
    assert spent == pytest.approx(
        36 * weights * sharers(cluster, "dram") / capacity(cluster, "dram"), rel=1e-4
    )


@pytest.mark.parametrize("sets", [(), (HOST,)])
def test_buckets_follow_each_other_as_in_a_pipeline(sets: tuple[str, ...]) -> None:
    """n buckets through three parts in order: the three parts of one, and the slowest part for
    each other."""
    made = planned(*sets)
    steps = closing(made)
    rate = capacity(made.scenario.cluster, "pcie") / 1e9
    at = {stream: bucket_steps(steps, stream) for stream in (FROM_HOST, COMPUTE, TO_HOST)}
    number = len(at[COMPUTE])
    assert number == len(at[TO_HOST]) == len(at[FROM_HOST])
    each = []
    for places in at.values():
        step = steps[places[0]]
        flow = step.traffic
        size = max(flow.to_host_bytes, flow.from_host_bytes) if flow else 0.0
        each.append(step.duration_ns + size / rate)
    begin = min(min(places) for places in at.values())
    done = ends(steps, rate)
    before = max((done[i] for i in steps[begin].after), default=0.0)
    last = max(done[place] for places in at.values() for place in places)
    assert last - before == pytest.approx(sum(each) + (number - 1) * max(each), rel=1e-9)


def test_no_more_buckets_are_under_way_than_there_are_parts() -> None:
    made = planned()
    steps = closing(made)
    ups, downs = bucket_steps(steps, FROM_HOST), bucket_steps(steps, TO_HOST)
    for place, up in enumerate(ups[3:], start=3):
        assert downs[place - 3] in steps[up].after


def test_orthogonalised_updates_on_the_host_send_momentum_up_and_results_down() -> None:
    sets = ("memory.offload=[optimizer_expert]", HOST)
    made = plan(moe(4, 4, 1, 8, *sets))
    chunks = [chunk for chunk in made.chunks if chunk.stage == 1]
    share = share_of(made.scenario, made.mesh, chunks)
    places = [phase.place for phase in host_phases(made.scenario, share)]
    assert places == ["to_host", "host", "from_host", "device", "to_host", "host", "from_host"]
    steps, _ = finishes(made, CostModel.of(made))[1]
    phases = host_phases(made.scenario, share)
    copied = [step.traffic for step in steps if step.stream in (TO_HOST, FROM_HOST)]
    assert len(copied) == 4 * buckets(phases)
    assert all(at > max(step.after, default=-1) for at, step in enumerate(steps))


@pytest.mark.parametrize("update", ["device", "host"])
def test_what_the_host_keeps_is_paid_at_the_end_of_the_step(update: str) -> None:
    here = plan(moe(4, 4, 1, 8))
    away = plan(moe(4, 4, 1, 8, "memory.offload=[optimizer]", f"memory.optimizer_update={update}"))
    assert away.memory.peak.peak_bytes < here.memory.peak.peak_bytes
    played = {key: simulate(lower(made)) for key, made in (("here", here), ("away", away))}
    assert played["away"].step_ns > played["here"].step_ns
    spent = {
        key: sum(row["exposed_offload"] + row["optimizer"] for row in trace.breakdown_ns)
        for key, trace in played.items()
    }
    assert spent["away"] > spent["here"]
    assert not any(row["exposed_offload"] for row in played["here"].breakdown_ns)


def test_what_the_host_keeps_is_updated_once_and_by_no_other_kernel() -> None:
    """The kernels of all buckets take what those of the whole update take."""
    away, here = closing(planned()), closing(planned("memory.offload=[]"))
    spent = [
        sum(step.duration_ns for step in steps if step.name == "optimizer")
        for steps in (away, here)
    ]
    assert spent[0] == pytest.approx(spent[1], abs=len(away))
