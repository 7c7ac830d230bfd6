"""The frontier of two figures of which less is better."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twin.explore.sweep.sweep import frontier

PAIR = st.tuples(st.integers(0, 8).map(float), st.integers(0, 8).map(float))


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]


@given(st.dictionaries(st.integers(0, 99), PAIR, max_size=30))
def test_exactly_those_are_on_it_that_no_other_beats(figures: dict[int, tuple[float, float]]):
    unbeaten = {
        key
        for key, pair in figures.items()
        if not any(beats(other, pair) for other in figures.values())
    }
    assert frontier(figures) == tuple(sorted(unbeaten))


@given(st.dictionaries(st.integers(0, 99), PAIR, min_size=1, max_size=30))
def test_the_quickest_and_the_cheapest_are_on_it(figures: dict[int, tuple[float, float]]):
    found = {figures[key] for key in frontier(figures)}
    assert min(pair[0] for pair in found) == min(pair[0] for pair in figures.values())
    assert min(pair[1] for pair in found) == min(pair[1] for pair in figures.values())


def test_nothing_has_no_frontier():
    assert frontier({}) == ()
