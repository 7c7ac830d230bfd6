"""Max-min sharing: hand-checked cases and the two properties that define it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twin.engine.clock import Clock
from twin.engine.fluid import Fluid, fair_rates


def ends(capacity: list[float], flows: list[tuple[int, float, tuple[int, ...]]]) -> list[int]:
    """When each (start, bytes, links) flow ends."""
    clock = Clock()
    result = [-1] * len(flows)

    def arrived(index: int) -> None:
        result[index] = clock.nanoseconds

    fluid = Fluid(clock, capacity, arrived)

    def launch(index: int) -> None:
        _, size, links = flows[index]
        fluid.start(index, size, links)

    for index, (start, _, _) in enumerate(flows):
        clock.call(start, launch, index)
    clock.play()
    return result


def test_a_lone_flow_runs_at_its_slowest_link() -> None:
    assert ends([4.0, 2.0], [(0, 100.0, (0, 1))]) == [50]


def test_two_flows_halve_a_link_and_the_survivor_takes_it_back() -> None:
    """100 B and 200 B at 2 B/ns: both at 1 until 100, then the second's 100 B at 2 until 150."""
    assert ends([2.0], [(0, 100.0, (0,)), (0, 200.0, (0,))]) == [100, 150]


def test_a_late_flow_slows_an_early_one() -> None:
    """100 B from 0 at 1 B/ns; at 50 a 25 B flow joins: it ends at 100, the first at 125."""
    assert ends([1.0], [(0, 100.0, (0,)), (50, 25.0, (0,))]) == [125, 100]


def test_equal_flows_end_in_the_same_instant() -> None:
    assert ends([1.0], [(0, 1000.0, (0,))] * 3) == [3000, 3000, 3000]


def test_what_a_bottlenecked_flow_leaves_goes_to_the_others() -> None:
    """Bertsekas and Gallager's example: link 0 (1.0) carries a and b, link 1 (3.0) carries b and c:
    b gets 0.5, c gets 2.5."""
    one = ((0,), (1.0,)), ((0, 1), (1.0, 1.0)), ((1,), (1.0,))
    assert fair_rates(one, [1.0, 3.0]) == [0.5, 0.5, 2.5]


def test_a_flow_that_stands_for_four_gets_what_each_of_the_four_would() -> None:
    """Four alike on a link of 8 beside one other: each gets 8/5; folded with a weight of 4, too."""
    apart = fair_rates([((0,), (1.0,))] * 5, [8.0])
    folded = fair_rates([((0,), (4.0,)), ((0,), (1.0,))], [8.0])
    assert folded == apart[:2]
    assert ends([8.0], [(0, 16.0, (0,))] * 4) == [8] * 4


@given(
    st.lists(st.floats(0.5, 8.0), min_size=1, max_size=5),
    st.lists(
        st.dictionaries(st.integers(0, 4), st.floats(0.25, 8.0), min_size=1, max_size=3),
        min_size=1,
        max_size=8,
    ),
)
def test_no_link_is_overfull_and_every_flow_has_a_full_link_where_it_is_fastest(
    capacity: list[float], paths: list[dict[int, float]]
) -> None:
    """The definition of max-min fairness (Bertsekas and Gallager, section 6.5.2): every flow
    crosses a saturated link on which no other flow has a higher rate."""
    flows = [{k % len(capacity): weight for k, weight in path.items()} for path in paths]
    rate = fair_rates([(tuple(flow), tuple(flow.values())) for flow in flows], capacity)
    load = [
        sum(r * flow.get(k, 0.0) for r, flow in zip(rate, flows, strict=True))
        for k in range(len(capacity))
    ]
    assert all(used <= full * (1 + 1e-9) for used, full in zip(load, capacity, strict=True))
    for own, flow in zip(rate, flows, strict=True):
        assert any(
            load[k] >= capacity[k] * (1 - 1e-9)
            and all(r <= own * (1 + 1e-9) for r, o in zip(rate, flows, strict=True) if k in o)
            for k in flow
        )


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 200)), min_size=1, max_size=6))
def test_a_shared_link_is_busy_until_all_bytes_are_through(flows: list[tuple[int, int]]) -> None:
    """Work conservation: the last byte leaves when a single server would have sent it, up to a
    rounded nanosecond per flow."""
    clock = 0.0
    for start, size in sorted(flows):
        clock = max(clock, start) + size
    done = max(ends([1.0], [(start, float(size), (0,)) for start, size in flows]))
    assert clock <= done + 1e-6
    assert done <= clock + len(flows)
