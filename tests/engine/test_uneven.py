"""GPUs that differ: few kinds of ranks give what all ranks give, and what one slow GPU or NIC costs
where one can work it out by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests.engine.programs import apart, by_hand
from tests.engine.scenarios import dense, moe
from tests.engine.test_folding import CASES
from twin.collectives.traffic import Traffic
from twin.engine import lower, plan, simulate
from twin.engine.program import COMPUTE, TENSOR, Program, Step, Template
from twin.engine.roles import roles, roles_of_ranks
from twin.engine.unevenness import SHARES, Noise, coloured, refined, shares
from twin.scenario import Scenario
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.spec.cluster import DegradedSpec, JitterSpec

pytestmark = pytest.mark.usefixtures("each_player")
MORE = {
    "activations on the host": moe(4, 4, 1, 8, "memory.offload=[activations]"),
    "narrow uplinks": moe(
        8, 4, 2, 16, "cluster.fabric.oversubscription=2.0", "cluster.fabric.nodes_per_leaf=2"
    ),
}


def uneven(scenario: Scenario, *degraded: DegradedSpec, jitter: float = 0.0) -> Scenario:
    drawn = JitterSpec(spread=jitter, seed=1) if jitter else None
    less = scenario.cluster.model_copy(update={"degraded": degraded})
    return with_jitter(scenario.model_copy(update={"cluster": less}), drawn)


def with_jitter(scenario: Scenario, jitter: JitterSpec | None) -> Scenario:
    cluster = scenario.cluster.model_copy(update={"jitter": jitter})
    return scenario.model_copy(update={"cluster": cluster})


def drawn(scenario: Scenario, seed: str) -> Scenario:
    """One or two GPUs that do less, and sometimes a node."""
    random, cluster = Random(seed), scenario.cluster
    found = [
        DegradedSpec.model_validate(
            {"gpus": (random.randrange(cluster.gpus),)}
            | {name: random.uniform(0.3, 1.0) for name in random.sample(SHARES, 2)}
        )
        for _ in range(random.choice([1, 1, 2]))
    ]
    if random.random() < 0.3:
        found.append(DegradedSpec(nodes=(random.randrange(cluster.nodes),), compute=0.9))
    return uneven(scenario, *found)


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_kinds_of_ranks_give_what_all_ranks_give(name: str) -> None:
    resolved = plan(drawn((CASES | MORE)[name], name))
    folded, every = simulate(lower(resolved)), simulate(lower(resolved, "all"))
    assert folded.step_ns == every.step_ns
    role_of = roles_of_ranks(resolved)
    alone = roles_of_ranks(resolved, "all")
    for rank in range(resolved.mesh.ranks):
        assert folded.breakdown_ns[role_of[rank]] == every.breakdown_ns[alone[rank]]


def test_one_slow_gpu_leaves_few_kinds_of_ranks() -> None:
    resolved = plan(uneven(moe(8, 4, 2, 16), DegradedSpec(gpus=(17,), compute=0.9)))
    own = roles(resolved)
    assert len(own) < resolved.mesh.ranks // 4
    assert sum(role.ranks for role in own) == resolved.mesh.ranks
    assert [role.ranks for role in own if role.shares.compute < 1] == [1]


def test_all_gpus_slow_alike_is_a_slower_gpu() -> None:
    """By hand: kernels of a step without communication take 1 / 0.8 as long."""
    even = dense(1, 1, 1, 8)
    alone = even.model_copy(update={"software": None})
    every = DegradedSpec(nodes=(0,), compute=0.8)
    before, after = (simulate(lower(plan(one))) for one in (alone, uneven(alone, every)))
    assert len(after.roles) == 1
    for cause in ("compute", "optimizer"):
        whole, slow = before.breakdown_ns[0][cause], after.breakdown_ns[0][cause]
        assert slow == pytest.approx(whole / 0.8, rel=1e-6)


def test_a_slow_stage_sets_the_pace_of_its_pipeline() -> None:
    """By hand: two stages of one GPU each, 1F1B. The slow last stage is busy
    from the first forward that reaches it to its last backward; before it, the first stage runs one
    forward, after it one backward. Both update their weights at the end."""
    even = dense(
        1, 2, 1, 1, "cluster.node.gpus=2", "parallel.zero=0", "model.tied_embeddings=false"
    )
    slow = uneven(even, DegradedSpec(gpus=(1,), compute=0.5))
    before, after = (simulate(lower(plan(one))) for one in (even, slow))
    fast, late = (after.breakdown_ns[stage]["compute"] for stage in (0, 1))
    assert fast == before.breakdown_ns[0]["compute"]
    assert late == pytest.approx(2 * before.breakdown_ns[1]["compute"], rel=1e-6)
    messages = sum(row["exposed_pipeline"] for row in after.breakdown_ns)
    first, last = (row["optimizer"] for row in after.breakdown_ns)
    between = fast / after.microbatches + late
    assert between + first <= after.step_ns <= 1.001 * (between + max(first, last) + messages)


def test_a_nic_at_half_rate_doubles_the_exchange_of_its_group() -> None:
    """By hand: nothing but the data-parallel collectives of two nodes crosses the NIC, and these
    end together, at the slowest."""
    even = dense(2, 1, 1, 8, "parallel.zero=0", "parallel.overlap_grad_reduce=false")
    slow = uneven(even, DegradedSpec(gpus=(3,), nic=0.5))
    before, after = (simulate(lower(plan(one))) for one in (even, slow))
    exposed = [max(row["exposed_data"] for row in one.breakdown_ns) for one in (before, after)]
    latency = 0.02 * exposed[0]
    assert exposed[1] == pytest.approx(2 * exposed[0], abs=latency)
    assert after.step_ns - before.step_ns == pytest.approx(exposed[0], abs=latency)


def test_shares_multiply_and_jitter_has_mean_one() -> None:
    two = (DegradedSpec(gpus=(8,), compute=0.5), DegradedSpec(nodes=(1,), compute=0.8, nic=0.5))
    found = shares(uneven(moe(8, 4, 2, 16), *two).cluster)
    assert found[8].tolist() == [0.4, 1.0, 0.5, 1.0]
    assert found[9].tolist() == [0.8, 1.0, 0.5, 1.0]
    assert found[7].tolist() == [1.0] * 4
    wide = uneven(moe(512, 4, 2, 16), jitter=0.05).cluster
    times = 1 / shares(wide)[:, 0]
    assert times.mean() == pytest.approx(1.0, abs=4 * 0.05 / len(times) ** 0.5)
    assert np.log(times).std() == pytest.approx(0.05, rel=0.05)
    assert (shares(wide) == shares(wide)).all()


def noisy(program: Program, spread: float, *, together: bool) -> tuple[Program, list[list[int]]]:
    """The ranks of a program with kernels that vary, and nanoseconds of each one's kernels."""
    noise, one = Noise(spread, seed=3), program.roles[0]
    roles = tuple(
        replace(
            one,
            peers=(n,),
            groups={"world": 0, "tensor": 0 if together else n},
            noise=noise,
            rank=n,
        )
        for n in range(2)
    )
    times = [np.rint(100_000 * noise.factors(n, 16)[::2]).astype(int).tolist() for n in range(2)]
    return replace(program, roles=roles, wiring=apart(2)), times


@pytest.mark.parametrize("together", [True, False])
def test_kernels_that_vary_cost_the_slowest_of_each_meeting(together: bool) -> None:
    """By hand: four micro-batches of a forward and a backward of 100 us, each a factor of its own.
    Ranks that meet after every kernel wait for the slower each time, others at the end only."""
    meet = Traffic(nvlink_bytes=1e-9)

    def a_pass(name: str) -> Template:
        return (
            Step(name, COMPUTE, 100_000, ()),
            Step("sum", TENSOR, 0, (0,), meet, "tensor"),
            Step(name, COMPUTE, 0, (1,)),
        )

    plain = by_hand(
        OneForwardOneBackward(), (1, 1, 4), lambda _: a_pass("forward"), lambda _: a_pass("back")
    )
    program, (first, second) = noisy(plain, 0.1, together=together)
    met = sum(map(max, zip(first, second, strict=True)))
    found = simulate(program)
    assert found.step_ns == (met if together else max(sum(first), sum(second)))
    assert found.step_ns == simulate(program).step_ns
    assert met > max(sum(first), sum(second)) != 800_000


def test_kernels_that_vary_are_drawn_by_seed_for_each_rank() -> None:
    even = moe(4, 4, 1, 8)
    drawn = [
        simulate(
            lower(plan(with_jitter(even, JitterSpec(spread=0, kernel_spread=0.05, seed=seed))))
        )
        for seed in (1, 1, 2)
    ]
    assert drawn[0].step_ns == drawn[1].step_ns != drawn[2].step_ns
    assert len(drawn[0].roles) == 32
    assert drawn[0].step_ns > simulate(lower(plan(even))).step_ns


def test_gpus_that_all_differ_are_all_simulated() -> None:
    resolved = plan(uneven(moe(4, 4, 1, 8), jitter=0.02))
    assert len(lower(resolved).roles) == resolved.mesh.ranks
    assert simulate(lower(resolved)).step_ns > simulate(lower(plan(moe(4, 4, 1, 8)))).step_ns


def test_refinement_tells_members_apart_by_the_groups_of_their_groups() -> None:
    """By hand: pairs (0 1) (2 3) (4 5) and (1 2) (3 4) (5 0): a ring of six. Marking 0 leaves it,
    its neighbours, theirs, and the one across."""
    first, second = np.array([0, 0, 1, 1, 2, 2]), np.array([2, 0, 0, 1, 1, 2])
    marked = np.array([1, 0, 0, 0, 0, 0])
    found = refined(marked, [first, second]).tolist()
    assert len(set(found)) == 6  # the pairs of 0 are of two kinds: its ring has a direction
    assert len(set(refined(marked, [first]).tolist())) == 3
    assert coloured(marked, first).tolist()[0] == coloured(marked, first).tolist()[1]


@pytest.mark.parametrize("seed", range(4))
def test_less_never_makes_a_step_shorter_where_nothing_is_shared(seed: int) -> None:
    names = sorted(CASES)
    even = CASES[names[Random(seed).randrange(len(names))]]
    assert simulate(lower(plan(drawn(even, str(seed))))).step_ns >= (
        simulate(lower(plan(even))).step_ns
    )
