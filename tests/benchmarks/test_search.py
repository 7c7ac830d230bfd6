"""How fast layouts are judged, and how long a recommendation takes.

CPU time of this process where one core is asked about: other work on the machine then disturbs
little. A recommendation uses two processes, so its time is wall time.
"""

import time

import pytest

import twin
from twin.answers.executors import PoolChoice
from twin.explore.search.judge import Judge
from twin.explore.search.recommend import recommend
from twin.explore.search.recommendation import SearchRequest
from twin.explore.search.space import Goal, nodes_of, space
from twin.planning.compile import outlook

pytestmark = pytest.mark.benchmark


def test_a_core_judges_3000_layouts_per_second():
    judge = Judge(space(twin.load("kimi-k2-256xh800"), (32, 64, 128, 256)))
    begin = time.process_time()
    judge.all()
    seconds = time.process_time() - begin
    found = judge.found
    print(
        f"\n{found.examined:,} layouts judged by rules, memory and bound in {seconds:.1f} s: "
        f"{found.examined / seconds:,.0f} per second; {len(found.candidates):,} candidates"
    )
    assert found.examined >= 20_000
    assert found.examined / seconds >= 3000


def test_a_core_weighs_40_layouts_per_second_by_the_light_model():
    """Layouts of Kimi K2 on 2,304 and 4,096 GPUs, each seen once."""
    scenario = twin.load("kimi-k2-256xh800")
    first = [
        one.layout.applied(scenario)
        for nodes in (288, 512)
        for one in Judge(space(scenario, (nodes,))).all().candidates[:64]
    ]
    begin = time.process_time()
    seen = [outlook(one) for one in first]
    seconds = time.process_time() - begin
    print(f"\n{len(seen) / seconds:.0f} layouts per second by the light model")
    assert len(seen) / seconds >= 40


@pytest.mark.parametrize("goal", [Goal(days=60.0), Goal()], ids=["60 days", "fastest"])
def test_kimi_k2_on_256_to_4096_gpus_takes_at_most_a_minute(goal):
    scenario = twin.load("kimi-k2-256xh800")
    whole = space(scenario, nodes_of(scenario, "256:4096"))
    begin = time.perf_counter()
    found = recommend(SearchRequest(whole, goal, PoolChoice(jobs=2)))
    seconds = time.perf_counter() - begin
    print(
        f"\n{found.examined:,} layouts examined in {seconds:.0f} s, {found.evaluated} planned, "
        f"{found.simulated} simulated"
    )
    for size in found.sizes:
        leader = size.leader
        best = f"{leader.layout.words}, {leader.step_ns / 1e9:.1f} s" if leader else "-"
        print(
            f"{size.nodes * 8:>5} GPUs: {best}; {len(size.fitting)} simulated, {size.left} left, "
            f"at most {100 * size.doubt:.1f} % faster"
        )
    assert found.examined >= 20_000
    assert seconds < 60
